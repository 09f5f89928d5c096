// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

// FromEnvironment sets those flags of a command from the environment that were not given. Run does so before a command
// starts; a completion has to do it itself.
func FromEnvironment(c *cobra.Command) error { return fromEnvironment(c.Flags()) }
