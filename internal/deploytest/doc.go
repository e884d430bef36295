// Package deploytest holds the files of deploy/ to what the program really does: its metrics, its configuration, its commands. It
// has nothing but tests.
package deploytest
