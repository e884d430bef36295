package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a configuration, and where.
type Problem struct {
	File string
	// Line and Column count from 1; both are 0 when the problem is the file's as a whole.
	Line, Column int
	// Text says what is wrong, Hint what to do about it.
	Text, Hint string

	path string // of the key; with it the checks leave alone what could not be read
}

func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	b.WriteString(": ")
	b.WriteString(p.Text)
	if p.Hint != "" {
		b.WriteString(": ")
		b.WriteString(p.Hint)
	}
	return b.String()
}

// Problems is the error of a configuration: everything that is wrong with it, in the order of its lines.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As reach each problem.
func (p Problems) Unwrap() []error {
	all := make([]error, len(p))
	for i, problem := range p {
		all[i] = problem
	}
	return all
}

// Each returns the errors that were joined into one by errors.Join, or the one.
func Each(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	parts := joined.Unwrap()
	if err.Error() != errors.Join(parts...).Error() {
		return []error{err} // it says more than its parts: fmt.Errorf with several %w
	}
	var all []error
	for _, part := range parts {
		all = append(all, Each(part)...)
	}
	return all
}

// sorted returns the problems in the order of the file, without repetition.
func (p Problems) sorted() Problems {
	slices.SortStableFunc(p, func(a, b Problem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return cmp.Or(a.Column-b.Column, strings.Compare(a.Text, b.Text))
	})
	return slices.Compact(p)
}

// DidYouMean is the hint for a word that is not among the known ones: the nearest of them if one is near, else all.
func DidYouMean(word string, known []string) string {
	best, distance := "", len(word)/3+2
	for _, k := range known {
		if d := editDistance(strings.ToLower(word), k); d < distance {
			best, distance = k, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "known here: " + strings.Join(known, ", ")
}

// editDistance counts the insertions, deletions, replacements and swaps of neighbours that turn a into b.
func editDistance(a, b string) int {
	if len(a) > maxWord || len(b) > maxWord {
		return maxWord
	}
	var before, last []int
	for i := 0; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			if i == 0 {
				row[j] = j
				continue
			}
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// maxWord bounds the work for a key that is nobody's typing error.
const maxWord = 64
