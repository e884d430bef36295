package dashboard

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/pillarbox-dev/pillarbox/ops"
)

// number puts spaces that do not break between thousands. A count says when it is no exact one.
func number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func count(c ops.Count) string {
	text := number(c.N)
	if c.Estimated {
		text = "~" + text
	}
	if c.AtLeast {
		text += "+"
	}
	return text
}

// short is a number of at most four characters and a unit, for the axes of charts.
func short(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(v) >= unit.size {
			return strconv.FormatFloat(v/unit.size, 'g', 3, 64) + " " + unit.name
		}
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func rate(perSecond float64) string {
	if perSecond < 10 {
		return strconv.FormatFloat(perSecond, 'f', 1, 64)
	}
	return number(int64(perSecond + 0.5))
}

// percent keeps what is little but not nothing apart from nothing.
func percent(part float64) string {
	switch p := part * 100; {
	case p == 0:
		return "0 %"
	case p < 0.1:
		return "< 0.1 %"
	case p < 10:
		return strconv.FormatFloat(p, 'f', 1, 64) + " %"
	default:
		return strconv.FormatFloat(p, 'f', 0, 64) + " %"
	}
}

func bytesText(n int64) string {
	v, units := float64(n), []string{"B", "kB", "MB", "GB", "TB"}
	i := 0
	for v >= 1000 && i < len(units)-1 {
		v, i = v/1000, i+1
	}
	if i == 0 || v >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64) + " " + units[i]
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " " + units[i]
}

// latency is a short time with three figures.
func latency(d time.Duration) string {
	switch {
	case d <= 0:
		return "–"
	case d < 10*time.Millisecond:
		return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 1, 64) + " ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) + " s"
	}
	return age(d)
}

// age is a duration in the two largest units that say something.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return "< 1 s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%d h %02d min", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%d d %d h", d/day, d%day/time.Hour)
}

// ago says how long something is away from now, in one unit.
func ago(t, now time.Time) string {
	d := now.Sub(t)
	text := coarse(d.Abs())
	switch {
	case text == "":
		return "just now"
	case d < 0:
		return "in " + text
	}
	return text + " ago"
}

func coarse(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return ""
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d days", d/day)
}

// timeElement shows a time as the distance from now, and the exact one on hover.
func timeElement(t, now time.Time) template.HTML {
	const element = `<time datetime="%s" title="%s">%s</time>`
	t = t.UTC()
	return template.HTML(fmt.Sprintf(element, t.Format(time.RFC3339Nano), t.Format("2006-01-02 15:04:05.000 UTC"), ago(t, now)))
}

// word turns a constant like LOCK_WAIT into the end of a class name.
func word(s any) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, fmt.Sprint(s))
}
