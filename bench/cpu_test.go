package main

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestFamilyCPU(t *testing.T) {
	before, err := familyCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	after, err := familyCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if spent := after - before; spent < 2*clockTick || spent > time.Minute {
		t.Errorf("a child that counted to 200,000 spent %v", spent)
	}
	p, err := readStat(os.Getpid())
	if err != nil || p.parent != os.Getppid() {
		t.Errorf("parent: got %d (%v), want %d", p.parent, err, os.Getppid())
	}
	if _, err := readStat(-1); err == nil {
		t.Error("a process that does not exist has a stat")
	}
}
