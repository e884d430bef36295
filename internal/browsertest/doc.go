// Package browsertest looks at the dashboard of a real relay through a real browser: whether every page is legible and complete
// at the width of a telephone and of a desk, in light and in dark, whether an operator can do with it what it is for, and whether
// it holds without JavaScript. Start gives other tests such a browser.
package browsertest
