package webhook

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const helloSignature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"

func TestSignHex(t *testing.T) {
	for _, tt := range []struct{ secret, body, want string }{
		{"It's a Secret to Everybody", "Hello, World!", helloSignature},
		{"s3cret", "", "sha256=91dfac70c5348b04e1babb8b421ac92cec08b565b49ca16130dccb72503647b7"},
		{"s3cret", "\xff\xfe\x00", "sha256=9624f5451aeaf316a3021a2b0496d093045299bfa58b075e082f974c44ded3ad"},
	} {
		if got := SignHex([]byte(tt.secret), []byte(tt.body)); got != tt.want {
			t.Errorf("SignHex(%q, %q) = %s, want %s", tt.secret, tt.body, got, tt.want)
		}
		if err := VerifyHex([][]byte{[]byte(tt.secret)}, []byte(tt.body), tt.want); err != nil {
			t.Errorf("VerifyHex(%q, %q): %v", tt.secret, tt.body, err)
		}
	}
}

func TestVerifyHex(t *testing.T) {
	right := []byte("It's a Secret to Everybody")
	other := []byte("other")
	body := "Hello, World!"
	for name, tt := range map[string]struct {
		secrets   [][]byte
		body      string
		signature string
		want      error
	}{
		"first secret":        {[][]byte{right, other}, body, helloSignature, nil},
		"second secret":       {[][]byte{other, right}, body, helloSignature, nil},
		"upper-case hex":      {[][]byte{right}, body, "sha256=" + strings.ToUpper(helloSignature[7:]), nil},
		"no secrets":          {nil, body, helloSignature, ErrNoSecret},
		"missing":             {[][]byte{right}, body, "", ErrNoSignature},
		"other secret":        {[][]byte{other}, body, helloSignature, ErrWrong},
		"other body":          {[][]byte{right}, "Hello, World", helloSignature, ErrWrong},
		"last digit":          {[][]byte{right}, body, helloSignature[:70] + "8", ErrWrong},
		"short":               {[][]byte{right}, body, helloSignature[:70], ErrMalformed},
		"long":                {[][]byte{right}, body, helloSignature + "0", ErrMalformed},
		"prefix alone":        {[][]byte{right}, body, "sha256=", ErrMalformed},
		"no prefix":           {[][]byte{right}, body, helloSignature[7:], ErrMalformed},
		"prefix in capitals":  {[][]byte{right}, body, "SHA256=" + helloSignature[7:], ErrMalformed},
		"other scheme":        {[][]byte{right}, body, "sha512=" + helloSignature[7:], ErrMalformed},
		"no hex":              {[][]byte{right}, body, helloSignature[:70] + "g", ErrMalformed},
		"not ASCII":           {[][]byte{right}, body, helloSignature[:69] + "é", ErrMalformed},
		"space before":        {[][]byte{right}, body, " " + helloSignature, ErrMalformed},
		"two, comma":          {[][]byte{right}, body, helloSignature + "," + helloSignature, ErrMalformed},
		"NUL within":          {[][]byte{right}, body, helloSignature[:70] + "\x00", ErrMalformed},
		"empty secret signed": {[][]byte{{}}, body, helloSignature, ErrWrong},
	} {
		t.Run(name, func(t *testing.T) {
			if got := VerifyHex(tt.secrets, []byte(tt.body), tt.signature); !errors.Is(got, tt.want) {
				t.Errorf("VerifyHex = %v, want %v", got, tt.want)
			}
		})
	}
}

// The vector of the Standard Webhooks specification.
const (
	standardSecret  = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	standardID      = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	standardBody    = `{"test": 2432232314}`
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	standardTime    = 1614265330
)

func mustParse(t testing.TB, text string) []byte {
	t.Helper()
	secret, err := ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func TestSignStandard(t *testing.T) {
	secret := mustParse(t, standardSecret)
	at := time.Unix(standardTime, 999)
	if got := SignStandard([][]byte{secret}, standardID, at, []byte(standardBody)); got != vectorSignature {
		t.Errorf("SignStandard = %s, want %s", got, vectorSignature)
	}
	two := SignStandard([][]byte{secret, []byte("new")}, standardID, at, []byte(standardBody))
	if !regexp.MustCompile(`^v1,\S{44} v1,\S{44}$`).MatchString(two) || !strings.HasPrefix(two, vectorSignature) {
		t.Errorf("SignStandard with two secrets = %q, want two signatures, in order, one space between", two)
	}
}

func TestVerifyStandard(t *testing.T) {
	secret := mustParse(t, standardSecret)
	other := []byte("other")
	at := time.Unix(standardTime, 0)
	byOther := SignStandard([][]byte{other}, standardID, at, []byte(standardBody))
	good := Standard{standardID, "1614265330", vectorSignature}
	with := func(change func(*Standard)) Standard { s := good; change(&s); return s }
	signed := func(signature string) Standard { return Standard{standardID, "1614265330", signature} }
	for name, tt := range map[string]struct {
		secrets [][]byte
		given   Standard
		now     time.Time
		want    error
	}{
		"vector":             {[][]byte{secret}, good, at, nil},
		"second secret":      {[][]byte{other, secret}, good, at, nil},
		"among several":      {[][]byte{secret}, signed("v1,AAAA " + byOther + " " + good.Signature), at, nil},
		"unknown version":    {[][]byte{secret}, signed("v1a,AAAA v2,x " + good.Signature), at, nil},
		"no secrets":         {nil, good, at, ErrNoSecret},
		"other secret":       {[][]byte{other}, good, at, ErrWrong},
		"other id":           {[][]byte{secret}, with(func(s *Standard) { s.ID = "msg_x" }), at, ErrWrong},
		"other time":         {[][]byte{secret}, with(func(s *Standard) { s.Timestamp = "1614265331" }), at, ErrWrong},
		"no id":              {[][]byte{secret}, with(func(s *Standard) { s.ID = "" }), at, ErrNoSignature},
		"no time":            {[][]byte{secret}, with(func(s *Standard) { s.Timestamp = "" }), at, ErrNoSignature},
		"no signature":       {[][]byte{secret}, signed(""), at, ErrNoSignature},
		"only other version": {[][]byte{secret}, signed("v1a,AAAA"), at, ErrMalformed},
		"bad base64":         {[][]byte{secret}, signed("v1,é"), at, ErrMalformed},
		"newline within":     {[][]byte{secret}, signed(good.Signature[:9] + "\n" + good.Signature[9:]), at, ErrMalformed},
		"short":              {[][]byte{secret}, signed("v1,AAAA"), at, ErrMalformed},
		"time no number":     {[][]byte{secret}, with(func(s *Standard) { s.Timestamp = "now" }), at, ErrMalformed},
		"time signed":        {[][]byte{secret}, with(func(s *Standard) { s.Timestamp = "+1614265330" }), at, ErrMalformed},
		"time negative":      {[][]byte{secret}, with(func(s *Standard) { s.Timestamp = "-1614265330" }), at, ErrMalformed},
		"time overflows":     {[][]byte{secret}, with(func(s *Standard) { s.Timestamp = "99999999999999999999" }), at, ErrMalformed},
		"time far ahead": {[][]byte{secret}, Standard{standardID, "4611686018427387903",
			SignStandard([][]byte{secret}, standardID, time.Unix(1<<62-1, 0), []byte(standardBody))}, at, ErrNotInTime},
		"just in time, old": {[][]byte{secret}, good, at.Add(DefaultTolerance), nil},
		"too old":           {[][]byte{secret}, good, at.Add(DefaultTolerance + time.Second), ErrNotInTime},
		"just in time, new": {[][]byte{secret}, good, at.Add(-DefaultTolerance), nil},
		"too new":           {[][]byte{secret}, good, at.Add(-DefaultTolerance - time.Second), ErrNotInTime},
	} {
		t.Run(name, func(t *testing.T) {
			if got := VerifyStandard(tt.secrets, tt.given, []byte(standardBody), tt.now, 0); !errors.Is(got, tt.want) {
				t.Errorf("VerifyStandard = %v, want %v", got, tt.want)
			}
		})
	}
	got := VerifyStandard([][]byte{secret}, good, []byte(standardBody), at.Add(2*time.Second), time.Second)
	if !errors.Is(got, ErrNotInTime) {
		t.Errorf("a tolerance of one second, two seconds late: %v, want %v", got, ErrNotInTime)
	}
}

func TestParseSecret(t *testing.T) {
	want := []byte("0123456789abcdef")
	for _, text := range []string{
		"whsec_MDEyMzQ1Njc4OWFiY2RlZg==", "MDEyMzQ1Njc4OWFiY2RlZg==", " whsec_MDEyMzQ1Njc4OWFiY2RlZg==\n",
	} {
		if got, err := ParseSecret(text); err != nil || !bytes.Equal(got, want) {
			t.Errorf("ParseSecret(%q) = %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "whsec_", "not base64!", "whsec_whsec_AAAA"} {
		got, err := ParseSecret(text)
		if !errors.Is(err, ErrSecretFormat) {
			t.Errorf("ParseSecret(%q) = %q, %v, want ErrSecretFormat", text, got, err)
		}
		if text != "" && text != "whsec_" && strings.Contains(err.Error(), text) {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}

// Whatever comes in the header: it is accepted exactly when it is the right signature, in hex of any case.
func FuzzVerifyHex(f *testing.F) {
	f.Add("s3cret", []byte("{}"), "")
	f.Add("s3cret", []byte("1.0"), SignHex([]byte("s3cret"), []byte("1.0")))
	f.Add("s3cret", []byte("1.0"), strings.ToUpper(SignHex([]byte("s3cret"), []byte("1.0"))))
	f.Add("", []byte{0xff}, "sha256="+strings.Repeat("é", 32))
	f.Fuzz(func(t *testing.T, secret string, body []byte, signature string) {
		right := SignHex([]byte(secret), body)
		if err := VerifyHex([][]byte{[]byte(secret)}, body, right); err != nil {
			t.Fatalf("own signature refused: %v", err)
		}
		rest, prefixed := strings.CutPrefix(signature, "sha256=")
		decoded, err := hex.DecodeString(rest)
		want := prefixed && err == nil && "sha256="+hex.EncodeToString(decoded) == right
		if got := VerifyHex([][]byte{[]byte(secret)}, body, signature) == nil; got != want {
			t.Fatalf("VerifyHex(%q) accepted: %v, want %v", signature, got, want)
		}
	})
}

// Whatever comes in the three headers: it is accepted only when one part is the one right signature of that very text.
func FuzzVerifyStandard(f *testing.F) {
	now := time.Unix(standardTime, 0)
	secrets := [][]byte{[]byte("k")}
	f.Add("id", "1614265330", "v1,AAAA", []byte("{}"))
	f.Add("id", "1614265330", SignStandard(secrets, "id", now, []byte("{}")), []byte("{}"))
	f.Fuzz(func(t *testing.T, id, timestamp, signature string, body []byte) {
		if VerifyStandard(secrets, Standard{id, timestamp, signature}, body, now, 0) == nil {
			right := "v1," + base64.StdEncoding.EncodeToString(standardSum(secrets[0], id, timestamp, body))
			if !slices.Contains(strings.Split(signature, " "), right) {
				t.Fatalf("accepted %q, which does not hold %q", signature, right)
			}
		}
		if id == "" {
			return
		}
		right := SignStandard(secrets, id, now, body)
		if err := VerifyStandard(secrets, Standard{id, "1614265330", right}, body, now, 0); err != nil {
			t.Fatalf("own signature refused: %v", err)
		}
	})
}
