// SPDX-License-Identifier: Apache-2.0

// Package image builds what the guest lab boots, once, and keeps it in the
// user's cache directory:
//
//	<cache>/ernic/lab/
//	    base-<key>/    tree/                          minimal Debian, parent of the other two
//	    tools-<key>/   tree/                          QEMU with vfio-user-pci; QEMU runs chrooted here
//	    image-<key>/   guest.img vmlinuz modules/     root disk, kernel, modules of the root disk
//	    boot-<key>/    initramfs vmlinux              the agent and those modules, the kernel unpacked
//	    logs/          one log for each build
//
// A component is a directory with a manifest. Its key is a hash over all that
// goes into it: the pin file, the recipe's own source, the patches, the keys of
// the components below. It is built in a temporary directory beside it and
// renamed when complete, so a directory with a key is a complete one. A file
// lock keeps two processes from building at the same time.
//
// Packages come from Debian's unstable suite, from the mirror that the
// machine's own apt configuration names. That suite moves, so the pin file
// names patterns, and the manifest says which versions they met.
//
// All work inside the trees runs in a mount and process namespace of its own:
// whatever ends a build, no mount and no process of it stays.
package image
