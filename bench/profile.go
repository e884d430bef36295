package main

import (
	"errors"
	"os"
	"runtime"
	"runtime/pprof"
)

// profiled does the work under the profiles that were asked for. They are written once, so later calls do nothing more
// than the work.
func (s *session) profiled(work func() error) (err error) {
	if s.cpuProfile != "" {
		var stop func() error
		if stop, err = startCPUProfile(s.cpuProfile); err != nil {
			return err
		}
		s.cpuProfile = ""
		defer func() { err = errors.Join(err, stop()) }()
	}
	if s.memProfile != "" {
		file := s.memProfile
		s.memProfile = ""
		defer func() { err = errors.Join(err, writeHeapProfile(file)) }()
	}
	return work()
}

func startCPUProfile(file string) (stop func() error, err error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error { pprof.StopCPUProfile(); return f.Close() }, nil
}

func writeHeapProfile(file string) error {
	runtime.GC() // so that the profile is complete
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(pprof.WriteHeapProfile(f), f.Close())
}
