# SPDX-License-Identifier: Apache-2.0
"""Two connected queue pairs, and what checks say about completions."""

BIG = {'send_wr': 64, 'recv_wr': 64}


class Failed(AssertionError):
    """What a check found wrong."""


def want(condition, text):
    if not condition:
        raise Failed(text)


def same(got, expected, what):
    want(got == expected, f'{what}: {got!r}, want {expected!r}')


class Side:
    """One end of a pair: an endpoint with a PD, two CQs and a QP."""

    def __init__(self, ep, kind, pd=None, cqe=256, events=False, **caps):
        self.ep = ep
        self.pd = ep.pd() if pd is None else pd
        self.scq, self.rcq = ep.cq(cqe, events), ep.cq(cqe, events)
        self.kind = kind
        q = ep.qp(kind, self.pd, self.scq, self.rcq, **{**BIG, **caps})
        self.qp, self.qpn, self.inline = q['qp'], q['qpn'], q['inline']

    def mr(self, length, rights='lwra', offset=0):
        return Region(self.ep, self.pd, length, rights, offset)

    def send(self, op, **kwargs):
        return self.ep.post_send(self.qp, op, **kwargs)

    def recv(self, wr_id=0, sges=()):
        self.ep.post_recv(self.qp, wr_id, sges)

    def sent(self, status='success', op=None, wait=30.0, **fields):
        """The next send completion, which must be as told."""
        return self._one(self.scq, 'send', status, op, wait, fields)

    def received(self, status='success', op=None, wait=30.0, **fields):
        return self._one(self.rcq, 'receive', status, op, wait, fields)

    def _one(self, cq, queue, status, op, wait, fields):
        got = self.ep.poll(cq, 1, wait)
        want(got, f'no {queue} completion in {wait} s, want {status}')
        w = got[0]
        same(w['status'], status, f'{queue} completion {w}: status')
        if op is not None and status == 'success':
            same(w['op'], op, f'{queue} completion {w}: operation')
        for k, v in fields.items():
            same(w[k], v, f'{queue} completion {w}: {k}')
        return w

    def nothing(self, wait=0.3):
        """No completion at all."""
        for cq in (self.scq, self.rcq):
            got = self.ep.poll(cq, 1, wait)
            want(not got, f'an unexpected completion: {got}')

    def all_flushed(self, sends, recvs):
        """So many of each queue come back with the flush status, and no more."""
        for cq, n, name in ((self.scq, sends, 'send'), (self.rcq, recvs, 'receive')):
            got = self.ep.poll(cq, n, 20.0)
            same(len(got), n, f'flushed {name} requests')
            for w in got:
                same(w['status'], 'wr_flush_err', f'{name} completion {w}: status')
            ids = [w['id'] for w in got]
            same(ids, sorted(ids), f'order of the flushed {name} requests')
            same(len(set(ids)), n, f'different flushed {name} requests')
            want(not self.ep.poll(cq, 1, 0.1), f'more flushed {name} requests than were posted')

    def state(self, expected):
        same(self.ep.state(self.qp), expected, f'state of QP {self.qpn}')


class Region:
    """A memory region by the names checks use."""

    def __init__(self, ep, pd, length, rights='lwra', offset=0):
        self.ep, self.length = ep, length
        r = ep.mr(pd, length, rights, offset)
        self.mr, self.addr, self.lkey, self.rkey = r['mr'], r['addr'], r['lkey'], r['rkey']

    def sge(self, offset=0, length=None):
        return [self.addr + offset, self.length - offset if length is None else length, self.lkey]

    def fill(self, seed, offset=0, length=None, start=0):
        self.ep.fill(self.mr, offset, self.length - offset if length is None else length, seed, start)

    def note(self, seed, offset=0, length=None, start=0):
        self.ep.note(self.mr, offset, self.length - offset if length is None else length, seed, start)

    def intact(self, what='memory'):
        text = self.ep.verify(self.mr)
        want(not text, f'{what}: {text}')

    def store64(self, offset, value):
        self.ep.store(self.mr, offset, value.to_bytes(8, 'little').hex())

    def note64(self, offset, value):
        self.ep.note_bytes(self.mr, offset, value.to_bytes(8, 'little').hex())

    def load64(self, offset=0):
        return int.from_bytes(bytes.fromhex(self.ep.load(self.mr, offset, 8)), 'little')


def connect(x, y, family='ipv4', rights='lwra', **attr):
    """Brings both QPs to RTS, with PSNs that wrap soon."""
    gx, gy = x.ep.gids()[family], y.ep.gids()[family]
    px, py = 0xfffff0, 0xffff80
    for s, peer, own, other, sq, rq in ((x, y, gx, gy, px, py), (y, x, gy, gx, py, px)):
        path = {'qpn': peer.qpn, 'dgid': other[1], 'gid_index': own[0], 'psn': rq, **attr}
        s.ep.to_init(s.qp, rights)
        s.ep.to_rtr(s.qp, **path)
        s.ep.to_rts(s.qp, sq_psn=sq, **attr)


def pair(a, b, kind='rc', rights='lwra', family='ipv4', caps_a=None, caps_b=None, **attr):
    """A connected requester and responder."""
    x, y = Side(a, kind, **(caps_a or {})), Side(b, kind, **(caps_b or {}))
    connect(x, y, family, rights, **attr)
    return x, y


def datagrams(a, b, family='ipv4', qkeys=(0x11111111, 0x11111111), **caps):
    """Two UD QPs ready to send, with the AH from the first to the second."""
    x, y = Side(a, 'ud', **caps), Side(b, 'ud', **caps)
    for s, qkey in ((x, qkeys[0]), (y, qkeys[1])):
        s.ep.to_init(s.qp, qkey=qkey)
        s.ep.to_rtr(s.qp)
        s.ep.to_rts(s.qp)
    x.ah = a.ah(x.pd, a.gids()[family][0], b.gids()[family][1])
    return x, y


def counters(ep, *names):
    return {n: ep.counter(n) for n in names}


def moved(ep, before, **least):
    """The named counters of the device rose by at least so much."""
    for n, d in least.items():
        now = ep.counter(n)
        want(now >= before[n] + d, f'counter {n} went from {before[n]} to {now}, want at least {d} more')
