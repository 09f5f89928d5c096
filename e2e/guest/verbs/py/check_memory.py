# SPDX-License-Identifier: Apache-2.0
"""Regions, windows, and keys that end."""

from checks import check, every
from pair import Side, connect, pair, same, want
from check_data import transfer

ACC, BIND = 'rem_access_err', 'mw_bind_err'


def bind1(y, m, w, length, rights='wr', start=0):
    """Binds a window of type 1 on the responder and returns its key."""
    bind = {'mw': w, 'mr': m.mr, 'addr': m.addr + start, 'length': length, 'rights': rights}
    key = y.ep.bind_mw(y.qp, bind, 44)
    y.sent(op='bind', id=44)
    return key


def bind2(y, m, w, length, rights='wr', start=0):
    bind = {'mw': w, 'mr': m.mr, 'addr': m.addr + start, 'length': length, 'rights': rights}
    key = y.send('bind', wr_id=44, bind=bind)
    y.sent(op='bind', id=44)
    return key


def usable(x, y, m, key, at, seed):
    """A write and a read through the key work."""
    src, back = x.mr(100), x.mr(100)
    src.fill(seed)
    x.send('write', sges=[src.sge()], addr=m.addr + at, rkey=key)
    x.sent()
    m.note(seed, at, 100)
    x.send('read', sges=[back.sge()], addr=m.addr + at, rkey=key)
    x.sent()
    back.note(seed)
    back.intact('what was read')
    m.intact('what was written')


def refused(x, y, m, key, at, n=8, op='write', status=ACC):
    """The key does not work; both sides are connected anew."""
    src = x.mr(max(n, 8))
    x.send(op, sges=[src.sge(0, n)], addr=m.addr + at, rkey=key)
    x.sent(status)
    m.intact('memory behind a dead key')
    for s in (x, y):
        s.ep.to_state(s.qp, 'reset')
    connect(x, y)


def parent(y, length=16384, rights='lwrab'):
    m = y.mr(length, rights)
    return m


@check('window of type 1')
def window1(a, b):
    x, y = pair(a, b)
    m = parent(y)
    w = b.mw(y.pd, 1)['mw']
    key = bind1(y, m, w, 4096, start=4096)
    usable(x, y, m, key, 4096, 1)
    usable(x, y, m, key, 8192 - 100, 2)
    refused(x, y, m, key, 4095)
    refused(x, y, m, key, 8192 - 7)
    usable(x, y, m, key, 5000, 3)
    again = bind1(y, m, w, 100)  # another place, and another key
    want(again != key, 'the key did not change')
    refused(x, y, m, key, 4096)
    usable(x, y, m, again, 0, 4)
    bind1(y, m, w, 0)  # unbound
    refused(x, y, m, again, 0)


@every('rights of a window of type', [1, 2])
def window_rights(a, b, kind):
    x, y = pair(a, b)
    m = parent(y)
    for rights, bad in (('w', 'read'), ('r', 'write'), ('wr', 'faa')):
        w = b.mw(y.pd, kind)['mw']
        key = (bind1 if kind == 1 else bind2)(y, m, w, 4096, rights)
        refused(x, y, m, key, 0, op=bad)
        if kind == 2 and rights == 'wr':
            usable(x, y, m, key, 0, 7)


@check('window of type 2 ends with a send that invalidates')
def window2(a, b):
    x, y = pair(a, b)
    m, box = parent(y), y.mr(64)
    w = b.mw(y.pd, 2)['mw']
    for turn in range(5):
        key = bind2(y, m, w, 8192, start=100)
        usable(x, y, m, key, 100, turn)
        y.recv(3, [box.sge()])
        src = x.mr(64)
        src.fill(turn)
        x.send('send_inv', sges=[src.sge()], inv=key)
        x.sent()
        c = y.received(op='recv', id=3, len=64, with_inv=True)
        same(c['imm'], key, 'invalidated key')
        box.note(turn)
        box.intact()
        refused(x, y, m, key, 100)
        # A new binding needs a new window: this one was reset with its QP.
        w = b.mw(y.pd, 2)['mw']


@check('window of type 2 ends with a local invalidation')
def window2_local(a, b):
    x, y = pair(a, b)
    m = parent(y)
    w = b.mw(y.pd, 2)['mw']
    keys = []
    for turn in range(3):
        key = bind2(y, m, w, 4096)
        usable(x, y, m, key, 0, turn)
        y.send('local_inv', wr_id=6, inv=key)
        y.sent(id=6)
        keys.append(key)
    for key in keys:
        refused(x, y, m, key, 0)


@check('window of type 2 belongs to its queue pair')
def window2_qp(a, b):
    x, y = pair(a, b)
    m = parent(y)
    key = bind2(y, m, b.mw(y.pd, 2)['mw'], 4096)
    usable(x, y, m, key, 0, 1)
    u, v = Side(a, 'rc'), Side(b, 'rc', pd=y.pd)
    connect(u, v)
    src = u.mr(64)
    u.send('write', sges=[src.sge()], addr=m.addr, rkey=key)
    u.sent(ACC)
    m.intact()
    usable(x, y, m, key, 0, 2)


@check('window of type 1 is good for every queue pair of its domain')
def window1_qp(a, b):
    x, y = pair(a, b)
    m = parent(y)
    key = bind1(y, m, b.mw(y.pd, 1)['mw'], 4096)
    u, v = Side(a, 'rc'), Side(b, 'rc', pd=y.pd)
    connect(u, v)
    usable(u, v, m, key, 0, 1)
    p, q = pair(a, b)  # another domain
    p.send('write', sges=[p.mr(64).sge()], addr=m.addr, rkey=key)
    p.sent(ACC)
    m.intact()


@check('atomics through a window')
def window_atomic(a, b):
    x, y = pair(a, b)
    m, old = parent(y), x.mr(8)
    m.store64(8, 41)
    key = bind2(y, m, b.mw(y.pd, 2)['mw'], 4096, 'wra')
    x.send('faa', sges=[old.sge()], addr=m.addr + 8, rkey=key, compare_add=1)
    x.sent()
    m.note64(8, 42)
    m.intact()
    old.note64(0, 41)
    old.intact()


BAD_BIND = {
    'beyond its parent': lambda m, other: dict(addr=m.addr + 16000, length=1000, mr=m.mr),
    'before its parent': lambda m, other: dict(addr=m.addr - 8, length=100, mr=m.mr),
    'that wraps': lambda m, other: dict(addr=(1 << 64) - 50, length=100, mr=m.mr),
    'to a region without the right': lambda m, other: dict(addr=other.addr, length=100, mr=other.mr),
}


@every('refused binding', list(BAD_BIND), patched=True)
def bad_bind(a, b, name):
    x, y = pair(a, b)
    m, other = parent(y), y.mr(4096, 'lwr')
    w = b.mw(y.pd, 2)['mw']
    y.send('bind', wr_id=1, bind={'mw': w, 'rights': 'wr', **BAD_BIND[name](m, other)})
    y.send('send', wr_id=2)
    y.sent(BIND, id=1)
    y.all_flushed(1, 0)
    y.state('err')
    m.intact()


@check('refused binding of a window that is bound', patched=True)
def bound_already(a, b):
    x, y = pair(a, b)
    m = parent(y)
    w = b.mw(y.pd, 2)['mw']
    key = bind2(y, m, w, 4096)
    usable(x, y, m, key, 0, 1)
    y.send('bind', wr_id=1, bind={'mw': w, 'rights': 'wr', 'addr': m.addr, 'length': 10, 'mr': m.mr})
    y.sent(BIND, id=1)


@check('send that invalidates what it may not', patched=True)
def bad_invalidate(a, b):
    x, y = pair(a, b)
    m, box, src = parent(y), y.mr(64), x.mr(64)
    y.recv(3, [box.sge()])
    x.send('send_inv', wr_id=1, sges=[src.sge()], inv=m.rkey)  # an ordinary region
    x.sent(ACC, id=1)
    x.state('err')
    y.state('err')


@check('key of a region that is gone', patched=True)
def gone(a, b):
    x, y = pair(a, b)
    m = y.mr(4096)
    usable(x, y, m, m.rkey, 0, 1)
    key, addr = m.rkey, m.addr
    region = y.mr(4096)
    b.destroy(m.mr)
    src = x.mr(64)
    x.send('write', sges=[src.sge()], addr=addr, rkey=key)
    x.sent(ACC)
    region.intact()


@check('keys rotate')
def rotate(a, b):
    pd, seen = a.pd(), set()
    for _ in range(40):
        r = a.mr(pd, 4096)
        want(r['rkey'] not in seen, f'key {r["rkey"]:#x} was given twice in 40 registrations')
        seen.add(r['rkey'])
        a.destroy(r['mr'])


@every('regions of', ['1 byte', '3 pages at odd places', '64 MiB'], long=['64 MiB'])
def shapes(a, b, name):
    x, y = pair(a, b)
    size, off = {'1 byte': (1, 4095), '3 pages at odd places': (8195, 4093), '64 MiB': (64 << 20, 1)}[name]
    src, dst = x.mr(size, offset=off), y.mr(size, offset=(off + 1) % 4096)
    src.fill(5)
    x.send('write', sges=[src.sge()], addr=dst.addr, rkey=dst.rkey)
    x.sent()
    dst.note(5)
    dst.intact()


@every('regions at once:', [100, 300, 2000], usual=[300], long=[2000])
def many(a, b, n):
    x, y = pair(a, b)
    pd, regions = y.pd, []
    for i in range(n):
        regions.append(b.mr(pd, 64, 'lw', i % 4000))
    same(len({r['rkey'] for r in regions}), n, 'different keys')
    src = x.mr(64)
    src.fill(1)
    for r in regions[::50]:
        x.send('write', sges=[src.sge()], addr=r['addr'], rkey=r['rkey'])
        x.sent()
        b.note(r['mr'], 0, 64, 1)
    for r in regions[::25]:
        same(b.verify(r['mr']), '', 'a region')
    for r in regions:
        b.destroy(r['mr'])
    transfer(x, y, 'send', 3000)
