package config

import (
	"fmt"
	"net"
	"strings"

	"github.com/pillarbox-dev/pillarbox/dashboard/access"
)

// Dashboard says who may use the dashboard and the API, which are served where Listen says.
type Dashboard struct {
	Enabled *bool            `yaml:"enabled,omitempty"` // default true
	Tokens  []DashboardToken `yaml:"tokens,omitempty"`
	Users   []DashboardUser  `yaml:"users,omitempty"`
	// Mask names fields of payloads, and headers, whose values are not shown.
	Mask []string `yaml:"mask,omitempty"`
	// MaskOperators says whether operators do not see them either. Default true.
	MaskOperators *bool `yaml:"mask_operators,omitempty"`
}

// DashboardToken is a credential for programs.
type DashboardToken struct {
	Name string `yaml:"name" rule:"required" hint:"it stands in the operators' log"`
	Role string `yaml:"role" rule:"required" oneof:"viewer,operator" hint:"it can be viewer or operator"`
	File string `yaml:"file" rule:"required" hint:"name the file that holds the token"`
}

// DashboardUser is a credential for people.
type DashboardUser struct {
	Name         string `yaml:"name" rule:"required" hint:"it stands in the operators' log"`
	Role         string `yaml:"role" rule:"required" oneof:"viewer,operator" hint:"it can be viewer or operator"`
	PasswordFile string `yaml:"password_file" rule:"required" hint:"name the file that holds the password"`
}

// ServesDashboard tells whether the dashboard and the API are served.
func (c *Config) ServesDashboard() bool { return c.Listen != "" && orTrue(c.Dashboard.Enabled) }

// MasksOperators tells whether what is masked is hidden from operators too.
func (d Dashboard) MasksOperators() bool { return orTrue(d.MaskOperators) }

// Access returns the settings of package access. Log is for the caller to fill in.
func (d Dashboard) Access() access.Config {
	var a access.Config
	for _, t := range d.Tokens {
		a.Tokens = append(a.Tokens, access.Credential{Name: t.Name, Role: access.Role(t.Role), Secret: access.File(t.File)})
	}
	for _, u := range d.Users {
		a.Users = append(a.Users, access.Credential{Name: u.Name, Role: access.Role(u.Role), Secret: access.File(u.PasswordFile)})
	}
	return a
}

func (d *decoder) checkDashboard(c *Config) {
	named := len(c.Dashboard.Tokens) + len(c.Dashboard.Users)
	host, _, err := net.SplitHostPort(c.Listen)
	switch {
	case d.failed("dashboard") || d.failed("listen"):
		return
	case c.Listen == "" && named > 0:
		d.wrong("dashboard", "dashboard names who may use it, and it is not served", "add listen: 127.0.0.1:9470")
	case c.ServesDashboard() && err == nil && !isLoopback(host) && c.AllowRemote && named == 0:
		d.wrong("listen", fmt.Sprintf("listen %q opens the dashboard and the API to other machines, and nobody is named who may use them",
			shorten(c.Listen)), "add dashboard: {tokens: [{name: …, role: operator, file: …}]}, or users with a password_file; "+
			"dashboard: {enabled: false} serves neither")
	}
	d.checkNames(c.Dashboard)
}

// checkNames makes sure that the operators' log tells everybody apart.
func (d *decoder) checkNames(dashboard Dashboard) {
	taken := map[string]string{}
	check := func(path, name string) {
		switch at, seen := taken[name]; {
		case seen:
			d.wrong(path, fmt.Sprintf("%s: the name %q is that of %s as well", path, shorten(name), at),
				"give each its own: it stands in the operators' log")
		case name == access.LocalName || len(name) > access.MaxName:
			d.wrong(path, fmt.Sprintf("%s: the name %q cannot be used", path, shorten(name)),
				fmt.Sprintf("choose another of at most %d bytes", access.MaxName))
		}
		taken[name] = path
	}
	for i, token := range dashboard.Tokens {
		check(fmt.Sprintf("dashboard.tokens[%d].name", i), token.Name)
	}
	for i, user := range dashboard.Users {
		path := fmt.Sprintf("dashboard.users[%d].name", i)
		check(path, user.Name)
		if strings.Contains(user.Name, ":") {
			d.wrong(path, fmt.Sprintf("%s: the name %q holds a colon", path, shorten(user.Name)), "take it out: browsers cannot send it")
		}
	}
}
