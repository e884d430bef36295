package api

import (
	"context"

	"github.com/pillarbox-dev/pillarbox/ops"
)

// paused is what a destination has become.
type paused struct {
	Destination string `json:"destination"`
	Paused      bool   `json:"paused"`
}

func (a *api) pause(c *call) (any, error) { return a.setPause(c, true, a.Ops.Pause) }

func (a *api) resume(c *call) (any, error) { return a.setPause(c, false, a.Ops.Resume) }

// setPause stops a destination, which needs a reason, or lets it go on.
func (a *api) setPause(c *call, pause bool, do func(context.Context, string, ops.Action) error) (any, error) {
	body, err := c.body(maxBody)
	if err != nil {
		return nil, err
	}
	action := ops.Action{By: c.who.Name, Reason: body.reason(pause)}
	if err := body.done(); err != nil {
		return nil, err
	}
	name := c.PathValue("destination")
	return paused{name, pause}, do(c.Context(), name, action)
}
