package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/pillarbox-dev/pillarbox/examples/linkostar/platform"
)

// request is one as a supplier sees it.
type request struct {
	path   string
	header http.Header
	body   string
}

// What goes over the wire: the headers, the bodies to the byte, and a signature over them.
func TestWire(t *testing.T) {
	requests := make(chan request, 10)
	l := newLab(t, testRetry, time.Second, serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a body that broke off is seen below
		requests <- request{r.URL.Path, r.Header, string(body)}
	}))
	hub, bundle, version, free, bound, activation := newUUID(), newUUID(), newUUID(), newUUID(), newUUID(), newUUID()
	must(t, l.service.Transact(t.Context(), func(tx *sql.Tx) error {
		must(t, l.service.RegisterHub(t.Context(), tx, platform.Hub{UUID: hub, SupplierUUID: l.supplier, TenantUUID: tenants[1],
			BundleUUID: bundle, Identifier: "hub-1", Type: "OPEN", Metadata: `{"a":"é"}`, Supplier: "acme"}))
		d := platform.Device{UUID: free, VersionUUID: version, TenantUUID: tenants[1], SupplierUUID: l.supplier,
			MACAddress: "02:00:00:00:00:01", Source: platform.TenantCreate, Supplier: "acme"}
		must(t, l.service.RegisterDevice(t.Context(), tx, d))
		d.UUID, d.FirstSeenHubUUID, d.HubUUID, d.Source = bound, &hub, &hub, platform.BundleAutoProvision
		must(t, l.service.RegisterDevice(t.Context(), tx, d))
		return l.service.Activate(t.Context(), tx, activation, free)
	}))
	device := func(number int, uuid, hub, source string) string {
		return fmt.Sprintf(`{"device_instance_id":%d,"device_uuid":%q,"device_version_uuid":%q,"tenant_uuid":%q,`+
			`"first_seen_hub_uuid":%s,"hub_uuid":%s,"supplier_uuid":%q,"mac_address":"02:00:00:00:00:01","source":%q}`,
			number, uuid, version, tenants[1], hub, hub, l.supplier, source)
	}
	want := map[string]request{
		hub: {path: "/hub", body: fmt.Sprintf(`{"hub_uuid":%q,"supplier_uuid":%q,"tenant_uuid":%q,"bundle_uuid":%q,`+
			`"hub_identifier":"hub-1","hub_type":"OPEN","metadata":"{\"a\":\"é\"}"}`, hub, l.supplier, tenants[1], bundle)},
		free:  {path: "/device", body: device(1, free, "null", "tenant_create")},
		bound: {path: "/device", body: device(2, bound, `"`+hub+`"`, "bundle_auto_provision")},
		activation: {path: "/activation", body: fmt.Sprintf(`{"activation_uuid":%q,"activation_number":1,"device_instance_id":1,`+
			`"device_uuid":%q,"tenant_uuid":%q,"supplier_uuid":%q}`, activation, free, tenants[1], l.supplier)},
	}
	for range want {
		var got request
		select {
		case got = <-requests:
		case <-time.After(patience):
			t.Fatal("a request does not come")
		}
		id := got.header.Get("X-LinkOStar-Idempotency-Key")
		if w := want[id]; got.path != w.path || got.body != w.body {
			t.Errorf("%s: got %s\n%s\nwant %s\n%s", id, got.path, got.body, w.path, w.body)
		}
		checkHeaders(t, got.header, map[string]string{
			"X-Linkostar-Signature": sign(labSecret, got.body), "X-Linkostar-Idempotency-Key": id,
			"Authorization": "Bearer " + labToken, "Content-Type": "application/json", "User-Agent": "LinkOStar",
			"Content-Length": fmt.Sprint(len(got.body)),
		})
	}
}

// checkHeaders wants these headers and no others.
func checkHeaders(t *testing.T, got http.Header, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got.Get(name) != value {
			t.Errorf("%s: got %q, want %q", name, got.Get(name), value)
		}
	}
	if len(got) != len(want) {
		t.Errorf("headers: got %q, want just %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// sign is what both sides have to come to.
func sign(secret, body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}
