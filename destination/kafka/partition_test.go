package kafka

import "testing"

// The vectors are those of the Java client's own test, org.apache.kafka.common.utils.UtilsTest.
func TestMurmur2(t *testing.T) {
	for _, test := range []struct {
		key  string
		want int32
	}{
		{"21", -973932308},
		{"foobar", -790332482},
		{"a-little-bit-long-string", -985981536},
		{"a-little-bit-longer-string", -1486304829},
		{"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971},
		{"abc", 479470107},
	} {
		if got := int32(murmur2([]byte(test.key))); got != test.want {
			t.Errorf("murmur2(%q) = %d, want %d", test.key, got, test.want)
		}
	}
}

func TestTopicFault(t *testing.T) {
	long := make([]byte, 250)
	for i := range long {
		long[i] = 'a'
	}
	for name, good := range map[string]bool{
		"orders": true, "a.b_c-D9": true, string(long[:249]): true,
		"": false, ".": false, "..": false, string(long): false, "a b": false, "grün": false, "a/b": false,
	} {
		if fault := topicFault(name); (fault == "") != good {
			t.Errorf("topicFault(%.20q) = %q, want good: %v", name, fault, good)
		}
	}
}
