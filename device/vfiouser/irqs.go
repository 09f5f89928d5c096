// SPDX-License-Identifier: Apache-2.0

package vfiouser

// setIRQs handles SET_IRQS. Nothing changes unless the whole request is good.
func (s *Session) setIRQs(req *request) error {
	q, err := decodeSetIRQs(req.payload, len(req.fds), &s.irqMax)
	if err != nil {
		return err
	}
	vs := s.vectors[q.index]
	if q.count > 0 {
		vs = vs[q.start : q.start+q.count]
	}
	switch {
	case q.action != irqActionTrigger:
		s.setMask(&q)
	case q.data == irqDataEventFD:
		return assignAll(vs, req.fds)
	case q.count == 0: // disable the whole index
		return assignAll(vs, nil)
	default: // the client asks for the interrupts to fire now
		for i := range vs {
			if q.data == irqDataNone || q.bools[i] != 0 {
				// ENOENT means that nobody listens, which is not this request's fault.
				_ = vs[i].Signal()
			}
		}
	}
	return nil
}

// assignAll gives each vector its eventfd, or takes it away if fds is empty.
func assignAll(vs []Vector, fds []int) error {
	if len(fds) == 0 {
		for i := range vs {
			vs[i].assign(nil)
		}
		return nil
	}
	evs := make([]*eventFD, len(fds))
	for i, fd := range fds {
		e, err := newEventFD(fd)
		if err != nil {
			return err
		}
		evs[i] = e
	}
	for i, e := range evs {
		fds[i] = -1
		vs[i].assign(e)
	}
	return nil
}

func (s *Session) setMask(q *setIRQs) {
	if s.masker == nil {
		return
	}
	masked := q.action == irqActionMask
	if q.data == irqDataNone {
		s.masker.SetMask(IRQIndex(q.index), int(q.start), int(q.count), masked)
		return
	}
	for i, b := range q.bools {
		if b != 0 {
			s.masker.SetMask(IRQIndex(q.index), int(q.start)+i, 1, masked)
		}
	}
}
