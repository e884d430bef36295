package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/pillarbox-dev/pillarbox/examples/linkostar/platform"
)

// workload is what customers do all day: they provision bundles, create devices, and activate them.
type workload struct {
	platform   *platform.Platform
	suppliers  map[string]supplierConfig
	rolledBack atomic.Int64 // events
}

const (
	workers = 4
	pause   = 60 * time.Millisecond // between two transactions of a worker, on average
)

// tenants are those of the platform. The last one has not paid its supplier.
var tenants = [...]string{
	"01980f5e-7d6c-7000-8000-000000000001", "01980f5e-7d6c-7000-8000-000000000002", "01980f5e-7d6c-7000-8000-000000000003",
	"01980f5e-7d6c-7000-8000-000000000004", brokeTenant,
}

const brokeTenant = "01980f5e-7d6c-7000-8000-0000000000b0"

// run works until the context ends. A transaction that has begun is brought to its end.
func (w *workload) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, workers)
	var working sync.WaitGroup
	for i := range workers {
		working.Go(func() {
			if errs[i] = w.work(ctx); errs[i] != nil {
				stop()
			}
		})
	}
	working.Wait()
	return errors.Join(errs...)
}

// work is one worker. It activates devices that it has made itself.
func (w *workload) work(ctx context.Context) error {
	var devices []string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rand.N(2 * pause)):
		}
		made, err := w.transact(context.WithoutCancel(ctx), devices)
		if err != nil {
			return fmt.Errorf("the platform: %w", err)
		}
		devices = append(devices, made...)
	}
}

// errChangedMind rolls a transaction back.
var errChangedMind = errors.New("the customer has changed their mind")

// transact is one transaction. One in ten is rolled back.
func (w *workload) transact(ctx context.Context, devices []string) (made []string, err error) {
	names := slices.Sorted(maps.Keys(w.suppliers))
	supplier, tenant := names[rand.N(len(names))], tenants[rand.N(len(tenants))]
	events := 0
	err = w.platform.Transact(ctx, func(tx *sql.Tx) error {
		var err error
		switch dice := rand.N(10); {
		case dice < 2 || len(devices) == 0:
			made, err = w.provision(ctx, tx, supplier, tenant)
			events = 1 + len(made)
		case dice < 4:
			made, err = w.create(ctx, tx, supplier, tenant, nil, platform.TenantCreate)
			events = 1
		default:
			err = w.platform.Activate(ctx, tx, newUUID(), devices[rand.N(len(devices))])
			events = 1
		}
		if err == nil && rand.N(10) == 0 {
			return errChangedMind
		}
		return err
	})
	if errors.Is(err, errChangedMind) {
		w.rolledBack.Add(int64(events))
		return nil, nil
	}
	return made, err
}

// provision registers a hub and the devices of its bundle, in one transaction.
func (w *workload) provision(ctx context.Context, tx *sql.Tx, supplier, tenant string) (devices []string, err error) {
	hub := platform.Hub{
		UUID: newUUID(), Supplier: supplier, SupplierUUID: w.suppliers[supplier].UUID, TenantUUID: tenant, BundleUUID: newUUID(),
		Identifier: fmt.Sprintf("hub-%06d", rand.N(1_000_000)), Type: []string{"OPEN", "CLOSED"}[rand.N(2)],
		Metadata: fmt.Sprintf(`{"firmware":"4.%d","region":"eu"}`, rand.N(10)),
	}
	if rand.N(8) == 0 {
		hub.Identifier = "legacy-" + hub.Identifier
	}
	if err := w.platform.RegisterHub(ctx, tx, hub); err != nil {
		return nil, err
	}
	for range 1 + rand.N(2) {
		made, err := w.create(ctx, tx, supplier, tenant, &hub.UUID, platform.BundleAutoProvision)
		if err != nil {
			return nil, err
		}
		devices = append(devices, made...)
	}
	return devices, nil
}

// create registers a device, at a hub or at none yet.
func (w *workload) create(
	ctx context.Context, tx *sql.Tx, supplier, tenant string, hub *string, source string,
) ([]string, error) {
	d := platform.Device{
		UUID: newUUID(), VersionUUID: newUUID(), Supplier: supplier, SupplierUUID: w.suppliers[supplier].UUID, TenantUUID: tenant,
		FirstSeenHubUUID: hub, HubUUID: hub, Source: source,
		MACAddress: fmt.Sprintf("02:00:%02x:%02x:%02x:%02x", rand.N(256), rand.N(256), rand.N(256), rand.N(256)),
	}
	return []string{d.UUID}, w.platform.RegisterDevice(ctx, tx, d)
}

// newUUID: version 7, so that new rows stand beside each other in the index.
func newUUID() string { return uuid.Must(uuid.NewV7()).String() }
