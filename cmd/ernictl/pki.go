// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ernic-dev/ernic/cmd/internal/cli"
	"github.com/ernic-dev/ernic/fabric/identity"
	"github.com/ernic-dev/ernic/fabric/pki"
)

const day = 24 * time.Hour

// soon is how long before its end a certificate is worth a word.
const soon = 30 * day

func pkiCommand() *cobra.Command {
	dir := defaultPKIDir()
	c := &cobra.Command{
		Use:   "pki",
		Short: "Make and show the certificates of a site",
		Long: `pki is the certificate authority of a small site: a directory with a key that signs and the
certificates that it signed. It works on files alone and asks nobody.

A certificate names a role and a name, not a host: manager, worker or operator. Each program is given
its own .crt and .key and a copy of ca.crt as --tls-cert, --tls-key and --tls-ca. ca.key stays here.`,
		Example: `  ernictl pki init
  ernictl pki issue manager head
  ernictl pki issue worker host7
  ernictl pki issue operator alice
  ernictl pki revoke /etc/ernic/pki/worker-host7.crt
  ernictl pki show`,
	}
	c.PersistentFlags().StringVar(&dir, "pki-dir", dir, "`directory` of the authority")
	c.AddCommand(pkiInitCommand(&dir), pkiIssueCommand(&dir), pkiRevokeCommand(&dir), pkiShowCommand(&dir))
	return c
}

// defaultPKIDir is the system's for root and the user's own otherwise.
func defaultPKIDir() string {
	if os.Getuid() == 0 {
		return "/etc/ernic/pki"
	}
	if dir, err := os.UserConfigDir(); err == nil {
		return filepath.Join(dir, "ernic", "pki")
	}
	return "pki"
}

// validity is the time that a number of days is.
func validity(days int) (time.Duration, error) {
	if days < 1 || days > 36500 {
		return 0, cli.Usagef("--days %d is not between 1 and 36500", days)
	}
	return time.Duration(days) * day, nil
}

func pkiInitCommand(dir *string) *cobra.Command {
	var days int
	var name string
	c := &cobra.Command{
		Use:   "init",
		Short: "Make a certificate authority",
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := validity(days)
			if err != nil {
				return err
			}
			if _, err := pki.Init(*dir, name, d); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s is the certificate that every program is given as --tls-ca; %s signs and stays here\n",
				filepath.Join(*dir, pki.CertFile), filepath.Join(*dir, pki.KeyFile))
			return err
		},
	}
	c.Flags().IntVar(&days, "days", 3650, "`days` for which the authority is valid")
	c.Flags().StringVar(&name, "name", "ernic site", "`name` of the authority")
	return c
}

func pkiIssueCommand(dir *string) *cobra.Command {
	var days int
	var r pki.Request
	c := &cobra.Command{
		Use:   "issue ROLE NAME",
		Short: "Make a key and a certificate for a manager, a worker or an operator",
		Long: `issue makes a key and a certificate. ROLE is manager, worker or operator; NAME tells the holders of
one role apart. Workers that share a certificate, such as those of one host, can pose as each other.

A program that runs takes a replaced certificate in by itself.`,
		Args: cobra.ExactArgs(2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var roles []string
			for _, role := range identity.Roles() {
				roles = append(roles, string(role))
			}
			return roles, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) (err error) {
			if r.Identity, err = identity.New(args[0], args[1]); err != nil {
				return &cli.UsageError{Err: err}
			}
			if r.Validity, err = validity(days); err != nil {
				return err
			}
			ca, err := pki.Open(*dir)
			if err != nil {
				return err
			}
			issued, err := ca.Issue(r)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "--tls-cert %s --tls-key %s --tls-ca %s\n", issued.Cert, issued.Key, filepath.Join(*dir, pki.CertFile))
			return err
		},
	}
	c.Flags().IntVar(&days, "days", 365, "`days` for which the certificate is valid")
	c.Flags().StringSliceVar(&r.Hosts, "host", nil, "DNS name or IP `address` for programs that compare it, which those of the mesh do not; repeatable")
	c.Flags().BoolVar(&r.Replace, "replace", false, "replace the certificate that the holder has")
	return c
}

func pkiRevokeCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke FILE...",
		Short: "Take certificates back",
		Long: `revoke writes the certificates of files on the list of those that are revoked, which stands in ca.crt.
Copy that to all hosts: programs that run take it in by themselves, and make no new connection to or from
a holder of a revoked certificate. "ernictl node evict" ends the session that a worker still has.

The certificate of a file that "ernictl pki issue --replace" has replaced is gone: revoke first, then replace.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ca, err := pki.Open(*dir)
			if err != nil {
				return err
			}
			var certs []*x509.Certificate
			for _, file := range args {
				found, err := pki.Certificates(file)
				if err != nil {
					return err
				}
				certs = append(certs, found[0])
			}
			n, err := ca.Revoke(certs...)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%d certificates are revoked; copy %s to all hosts\n", n, filepath.Join(*dir, pki.CertFile))
			return err
		},
	}
}

// shownCertificate is a certificate as it is printed. The names of its fields are stable.
type shownCertificate struct {
	File     string    `json:"file" yaml:"file"`
	Role     string    `json:"role" yaml:"role"`
	Name     string    `json:"name" yaml:"name"`
	Issuer   string    `json:"issuer" yaml:"issuer"`
	Serial   string    `json:"serial" yaml:"serial"`
	NotAfter time.Time `json:"not_after" yaml:"not_after"`
	State    string    `json:"state" yaml:"state"`
}

func newCertificate(file string, cert *x509.Certificate, now time.Time) shownCertificate {
	s := shownCertificate{
		File: file, Role: "none", Name: cert.Subject.CommonName, Issuer: cert.Issuer.CommonName,
		Serial: cert.SerialNumber.Text(16), NotAfter: cert.NotAfter, State: "valid",
	}
	if cert.IsCA {
		s.Role = "authority"
	} else if id, err := identity.OfCertificate(cert); err == nil {
		s.Role, s.Name = string(id.Role), id.Name
	}
	switch {
	case now.Before(cert.NotBefore):
		s.State = "not-yet"
	case now.After(cert.NotAfter):
		s.State = "expired"
	case now.Add(soon).After(cert.NotAfter):
		s.State = "expires-soon"
	}
	return s
}

var certificateColumns = []column[shownCertificate]{
	{title: "FILE", cell: func(s shownCertificate) string { return s.File }},
	{title: "ROLE", cell: func(s shownCertificate) string { return s.Role }},
	{title: "NAME", cell: func(s shownCertificate) string { return s.Name }},
	{title: "ISSUER", cell: func(s shownCertificate) string { return s.Issuer }},
	{title: "UNTIL", cell: func(s shownCertificate) string { return s.NotAfter.Local().Format(time.DateOnly) }},
	{title: "STATE", cell: func(s shownCertificate) string { return s.State }},
	{title: "SERIAL", wide: true, cell: func(s shownCertificate) string { return s.Serial }},
}

func pkiShowCommand(dir *string) *cobra.Command {
	var f format
	c := &cobra.Command{
		Use:   "show [FILE...]",
		Short: "Show what certificates say and until when they are valid",
		Long: `show lists certificates: those in the directory of the authority, or those in the files named. STATE is
valid, expires-soon (within 30 days), expired, not-yet or revoked. A certificate whose role is none is of no use in a mesh.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				var err error
				if args, err = filepath.Glob(filepath.Join(*dir, "*.crt")); err != nil {
					return err
				}
				if len(args) == 0 {
					return fmt.Errorf("no certificates are in %s: \"ernictl pki init\" makes an authority", *dir)
				}
				slices.SortStableFunc(args, func(a, b string) int {
					return strings.Compare(filepath.Base(a), filepath.Base(b))
				})
			}
			// Without an authority nothing is known to be revoked.
			var revoked *pki.Revoked
			if raw, err := os.ReadFile(filepath.Join(*dir, pki.CertFile)); err == nil {
				if revoked, err = pki.ParseRevoked(raw); err != nil {
					return fmt.Errorf("%s: %w", filepath.Join(*dir, pki.CertFile), err)
				}
			}
			var shown []shownCertificate
			var errs []error
			for _, file := range args {
				certs, err := pki.Certificates(file)
				if err != nil {
					errs = append(errs, err)
				}
				for _, cert := range certs {
					s := newCertificate(file, cert, time.Now())
					if revoked.Check(cert) != nil {
						s.State = "revoked"
					}
					shown = append(shown, s)
				}
			}
			p := &printer[shownCertificate]{out: c.OutOrStdout(), format: f, columns: certificateColumns}
			return errors.Join(p.list(shown), errors.Join(errs...))
		},
	}
	addOutput(c, &f, nil)
	return c
}
