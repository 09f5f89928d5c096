# SPDX-License-Identifier: Apache-2.0
"""Completion events, and asynchronous ones."""

from checks import check, every
from pair import Side, connect, pair, same, want


def evented(a, b, **kwargs):
    return pair(a, b, caps_a={'events': True}, caps_b={'events': True}, **kwargs)


@check('event for a completion after arming')
def after_arming(a, b):
    x, y = evented(a, b)
    src, dst = x.mr(64), y.mr(64)
    b.event(y.rcq, 0.1)  # the first arming may have found its event already
    for turn in range(20):
        y.recv(turn, [dst.sge()])
        b.arm(y.rcq)
        # libionic arms with the next poll.
        want(not b.poll(y.rcq, 1, 0), 'a completion before a send')
        x.send('send', wr_id=turn, sges=[src.sge()])
        x.sent()
        want(b.event(y.rcq), f'no event in turn {turn}')
        y.received(id=turn)
        want(not b.event(y.rcq, 0.05), 'an event that nobody armed for')


@check('event when arming a queue that is not empty')
def not_empty(a, b):
    x, y = evented(a, b)
    src, dst = x.mr(64), y.mr(64)
    for turn in range(8):
        for i in range(2):
            y.recv(2 * turn + i, [dst.sge()])
            x.send('send', wr_id=turn, sges=[src.sge()])
            x.sent()
        y.received(id=2 * turn)
        while b.event(y.rcq, 0.05):
            pass
        b.arm(y.rcq)
        y.recv(0, [dst.sge()])  # passes the arming on
        want(b.event(y.rcq), f'no event in turn {turn}, with a completion unread')
        y.received(id=2 * turn + 1)
        x.send('send', sges=[src.sge()])
        x.sent()
        y.received(id=0)
        while b.event(y.rcq, 0.05):
            pass


@check('solicited events only')
def solicited(a, b):
    x, y = evented(a, b)
    src, dst = x.mr(64), y.mr(64)
    b.event(y.rcq, 0.1)
    for turn in range(5):
        for i in range(3):
            y.recv(i, [dst.sge()])
        b.arm(y.rcq, True)
        want(not b.poll(y.rcq, 1, 0), 'a completion before a send')
        x.send('send', sges=[src.sge()])
        x.sent()
        want(not b.event(y.rcq, 0.3) or turn == 0, 'an event for a message that is not solicited')
        b.arm(y.rcq, True)
        b.poll(y.rcq, 1, 5)
        x.send('send', sges=[src.sge()], flags='signaled solicited')
        x.sent()
        want(b.event(y.rcq), 'no event for a solicited message')
        y.received()
        b.arm(y.rcq, True)
        want(not b.poll(y.rcq, 1, 0), 'a completion before a send')
        x.send('write_imm', sges=[src.sge()], flags='signaled solicited', addr=dst.addr, rkey=dst.rkey)
        x.sent()
        want(b.event(y.rcq), 'no event for a solicited write')
        y.received()


@check('errors are events for who armed for solicited ones', patched=True)
def errors_solicit(a, b):
    x, y = evented(a, b)
    dst = y.mr(64)
    b.event(y.rcq, 0.1)
    y.recv(1, [dst.sge()])
    b.arm(y.rcq, True)
    want(not b.poll(y.rcq, 1, 0), 'a completion too early')
    b.to_state(y.qp, 'err')
    want(b.event(y.rcq), 'no event for a flush')
    y.all_flushed(0, 1)


@every('event of completion vector', [0, 1], usual=[0])
def vectors(a, b, vector):
    n = b.attribute('max_cq')
    want(n > 1, 'no completion queues')
    x = Side(a, 'rc')
    y = Side(b, 'rc', events=True)
    connect(x, y)
    src, dst = x.mr(64), y.mr(64)
    pd = y.pd
    cq = b.cq(16, True, vector)
    q = b.qp('rc', pd, cq, cq)
    z = Side.__new__(Side)
    z.ep, z.pd, z.scq, z.rcq, z.qp, z.qpn, z.kind = b, pd, cq, cq, q['qp'], q['qpn'], 'rc'
    u = Side(a, 'rc')
    connect(u, z)
    b.event(cq, 0.1)
    z.recv(1, [dst.sge()])
    b.arm(cq)
    want(not b.poll(cq, 1, 0), 'a completion too early')
    u.send('send', sges=[u.mr(64).sge()])
    u.sent()
    want(b.event(cq), 'no event')
    want(len(b.poll(cq, 1)) == 1, 'no completion')
    src.intact()


@check('asynchronous event of a refused request')
def access_event(a, b):
    x, y = pair(a, b)
    src, dst = x.mr(64), y.mr(64)
    b.async_events()
    x.send('write', sges=[src.sge()], addr=dst.addr, rkey=dst.rkey ^ 1)
    x.sent('rem_access_err')
    same(b.async_events(30.0), ['qp_access_err'], 'events')


@check('communication established while in rtr')
def established(a, b):
    x, y = Side(a, 'rc'), Side(b, 'rc')
    src, dst = x.mr(64), y.mr(64)
    gx, gy = a.gids()['ipv4'], b.gids()['ipv4']
    b.to_init(y.qp)
    y.recv(1, [dst.sge()])
    b.to_rtr(y.qp, qpn=x.qpn, dgid=gx[1], gid_index=gy[0], psn=7)
    a.to_init(x.qp)
    a.to_rtr(x.qp, qpn=y.qpn, dgid=gy[1], gid_index=gx[0], psn=9)
    a.to_rts(x.qp, sq_psn=7)
    b.async_events()
    x.send('send', sges=[src.sge()])
    x.sent()
    y.received(id=1)
    same(b.async_events(30.0), ['comm_est'], 'events')
