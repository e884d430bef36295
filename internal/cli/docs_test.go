package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docCommand is a command line of ours in a text that people read.
type docCommand struct {
	where string // file:line
	words []string
}

// commandLine finds pillarbox as a program: at the beginning of a line of code, after a pipe, or in backticks.
var commandLine = regexp.MustCompile("(?:^ {4,}|^\\s*\\$ |\\| |`|&& )pillarbox ([a-z][^`|&]*)")

// docCommands returns the commands of a file, without comments and redirections.
func docCommands(t *testing.T, file string) (all []docCommand) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		for _, found := range commandLine.FindAllStringSubmatch(line, -1) {
			words, err := shellWords(found[1])
			if err != nil {
				t.Errorf("%s:%d: %v: %s", file, i+1, err, found[1])
				continue
			}
			all = append(all, docCommand{fmt.Sprintf("%s:%d", filepath.Base(file), i+1), words})
		}
	}
	return all
}

// shellWords divides a line as a shell does, as far as our documents need: quotes, comments, redirections.
func shellWords(line string) (words []string, err error) {
	var word strings.Builder
	inWord, quote := false, rune(0)
	end := func() {
		if inWord {
			words = append(words, word.String())
		}
		word.Reset()
		inWord = false
	}
	for _, c := range line {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == ' ':
			end()
		case c == '#' && !inWord, c == '>':
			end()
			return words, nil
		default:
			word.WriteRune(c)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("the quote %c is not closed", quote)
	}
	end()
	return words, nil
}

// problem returns why pillarbox does not understand the words; "" when it does. Nothing is run.
func (d docCommand) problem() string {
	var out bytes.Buffer
	root := newRoot(&app{out: &out, errOut: &out})
	cmd, rest, err := root.Find(d.words)
	if err == nil && cmd == root {
		err = fmt.Errorf("there is no command %q", d.words[0])
	}
	if err == nil {
		err = cmd.ParseFlags(rest)
		if isMention(d.words) && err != nil && strings.HasPrefix(err.Error(), "flag needs an argument") {
			err = nil
		}
	}
	if err == nil && !isMention(d.words) {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err == nil && !cmd.Runnable() {
		err = fmt.Errorf("%q wants a command below it", cmd.CommandPath())
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// isMention tells the mention of a command, like `pillarbox jobs start` or `pillarbox migrate --print-roles`, from a command line.
func isMention(words []string) bool { return len(words) <= 2 }

// Every command in a runbook is one that there is, with flags that it has and as many arguments as it takes.
func TestRunbookCommands(t *testing.T) {
	files, err := filepath.Glob("../../docs/runbooks/*.md")
	if err != nil || len(files) < 8 {
		t.Fatalf("runbooks: %q, %v", files, err)
	}
	total := 0
	for _, file := range append(files, "../../docs/operations.md", "../../docs/watching.md", "../../README.md") {
		for _, d := range docCommands(t, file) {
			total++
			if problem := d.problem(); problem != "" {
				t.Errorf("%s: pillarbox %s: %s", d.where, strings.Join(d.words, " "), problem)
			}
		}
	}
	if total < 60 {
		t.Errorf("only %d commands were found", total)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"\n## How it shows\n", "\n## What to do\n", "\n## When it is over\n"} {
			known := filepath.Base(file) == "README.md" || filepath.Base(file) == "restore-from-backup.md" && strings.Contains(part, "shows")
			if !known && !strings.Contains(string(text), part) {
				t.Errorf("%s lacks %q", filepath.Base(file), strings.TrimSpace(part))
			}
		}
	}
}

// TestDocCommandProblems plants what must be found.
func TestDocCommandProblems(t *testing.T) {
	for line, well := range map[string]bool{
		"status":                           true,
		"pause d":                          true, // the reason is asked for when it runs
		"pause d e":                        false,
		"paus d -x":                        false,
		"status -x":                        false,
		"jobs start":                       true, // a mention
		"jobs stop 7 --reason x":           false,
		"events list --status QUARANTINED": true,
		"events list --state QUARANTINED":  false,
		`jobs start d --kind retry --reason "their fix" # x`: true,
	} {
		words, err := shellWords(line)
		if err != nil {
			t.Fatal(err)
		}
		if problem := (docCommand{"here", words}).problem(); (problem == "") != well {
			t.Errorf("%s: problem %q, want one: %v", line, problem, !well)
		}
	}
	if _, err := shellWords(`status "x`); err == nil {
		t.Error("a quote that is not closed was taken")
	}
}
