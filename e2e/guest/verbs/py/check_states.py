# SPDX-License-Identifier: Apache-2.0
"""Flush, work in every state, and what the device keeps apart."""

from checks import check, every
from pair import Side, connect, pair, same, want


@every('flush of', ['both queues', 'an empty queue', 'queues that have wrapped'], usual=['both queues'], patched=True)
def flush(a, b, name):
    x, y = pair(a, b)
    src, dst = x.mr(64), y.mr(64)
    src.fill(1)
    if 'wrapped' in name:
        for turn in range(5):
            y.ep.post_recvs(y.qp, 40, [dst.sge()])
            x.ep.post_sends(x.qp, 'send', 40, sges=[src.sge()])
            same(len(x.ep.poll(x.scq, 40)), 40, 'sent')
            same(len(y.ep.poll(y.rcq, 40)), 40, 'received')
    n = 0 if 'empty' in name else 40
    y.ep.post_recvs(y.qp, n, [dst.sge()], 1000)
    b.to_state(y.qp, 'err')
    y.ep.post_sends(y.qp, 'send', n, 2000, sges=[dst.sge()])
    y.all_flushed(n, n)
    # Work posted in error is flushed too.
    for turn in range(3):
        y.recv(turn, [dst.sge()])
        y.send('send', wr_id=turn, sges=[dst.sge()], flags='')
        y.all_flushed(1, 1)
    y.state('err')


@check('flush of sends that are under way', patched=True)
def flush_under_way(a, b):
    x, y = pair(a, b, rnr_timer=31, rnr_retries=7)
    src = x.mr(64)
    for i in range(30):  # nobody receives
        x.send('send', wr_id=i, sges=[src.sge()], flags='')
    a.sleep(0.2)
    a.to_state(x.qp, 'err')
    x.all_flushed(30, 0)


@check('a flushed queue pair works again after reset', patched=True)
def flushed_and_back(a, b):
    x, y = pair(a, b)
    src, dst = x.mr(64), y.mr(64)
    for turn in range(5):
        x.ep.post_recvs(x.qp, 10, [src.sge()])
        a.to_state(x.qp, 'err')
        x.all_flushed(0, 10)
        a.to_state(x.qp, 'reset')
        b.to_state(y.qp, 'reset')
        connect(x, y)
        src.fill(turn)
        y.recv(turn, [dst.sge()])
        x.send('send', wr_id=turn, sges=[src.sge()])
        x.sent(id=turn)
        y.received(id=turn)
        dst.note(turn)
        dst.intact()


@check('receives posted in init are used after connecting')
def posted_early(a, b):
    x, y = Side(a, 'rc'), Side(b, 'rc')
    src, dst = x.mr(64), y.mr(64)
    src.fill(1)
    b.to_init(y.qp)
    y.ep.post_recvs(y.qp, 5, [dst.sge()])
    gx, gy = a.gids()['ipv4'], b.gids()['ipv4']
    b.to_rtr(y.qp, qpn=x.qpn, dgid=gx[1], gid_index=gy[0], psn=7)
    a.to_init(x.qp)
    a.to_rtr(x.qp, qpn=y.qpn, dgid=gy[1], gid_index=gx[0], psn=9)
    a.to_rts(x.qp, sq_psn=7)
    x.send('send', sges=[src.sge()])  # the responder is in RTR, which is enough
    x.sent()
    y.received(id=0)
    same(b.state(y.qp), 'rtr', 'state of the responder')


@check('sqd finishes what has begun and holds the rest back')
def drained(a, b):
    x, y = pair(a, b)
    src, dst = x.mr(64), y.mr(64)
    src.fill(1)
    for i in range(5):
        x.send('write', wr_id=i, sges=[src.sge()], addr=dst.addr, rkey=dst.rkey)
    a.to_state(x.qp, 'sqd')
    x.send('write', wr_id=5, sges=[src.sge()], addr=dst.addr, rkey=dst.rkey)
    done = x.ep.poll(x.scq, 6, 0.5)
    want(len(done) < 6, 'work posted in SQD was done')
    x.nothing(0.3)
    a.to_state(x.qp, 'rts')
    done += x.ep.poll(x.scq, 6 - len(done))
    same([(w['id'], w['status']) for w in done], [(i, 'success') for i in range(6)], 'completions')
    dst.note(1)
    dst.intact()


@every('flush of queue pairs at once:', [100, 1000], long=[1000], patched=True)
def flush_storm(a, b, n):
    pd, scq, rcq = a.pd(), a.cq(8 * n), a.cq(8 * n)
    peer = Side(b, 'rc')
    g, h = a.gids()['ipv4'], b.gids()['ipv4']
    qps = []
    for i in range(n):
        q = a.qp('rc', pd, scq, rcq, send_wr=4, recv_wr=4)['qp']
        a.to_init(q)
        a.to_rtr(q, qpn=peer.qpn, dgid=h[1], gid_index=g[0])
        a.to_rts(q)
        for k in range(3):
            a.post_recv(q, 4 * i + k)
        qps.append(q)
    for q in qps:
        a.to_state(q, 'err')
    for i, q in enumerate(qps):
        for k in range(2):
            a.post_send(q, 'send', 4 * i + k)
    for cq, each in ((scq, 2), (rcq, 3)):
        got = a.poll(cq, each * n, 60)
        same({w['status'] for w in got}, {'wr_flush_err'}, 'status')
        same(sorted(w['id'] for w in got), sorted(4 * i + k for i in range(n) for k in range(each)), 'requests')
        want(not a.poll(cq, 1, 0.1), 'more than was posted')


@check('a destroyed queue pair completes nothing')
def destroyed(a, b):
    x, y = pair(a, b, rnr_timer=20)
    src = x.mr(64)
    for i in range(10):
        x.send('send', wr_id=i, sges=[src.sge()])
    a.destroy(x.qp)
    x.nothing(0.3)


@check('traffic of many queue pairs at once', 'usual')
def crowd(a, b):
    pairs = [pair(a, b) for _ in range(24)]
    regions = []
    for i, (x, y) in enumerate(pairs):
        src, dst = x.mr(20000), y.mr(20000)
        src.fill(i)
        y.recv(i, [dst.sge()])
        regions.append((src, dst))
    for i, (x, y) in enumerate(pairs):
        x.send('send', wr_id=i, sges=[regions[i][0].sge()])
    for i, (x, y) in enumerate(pairs):
        x.sent(id=i)
        y.received(id=i, len=20000)
        regions[i][1].note(i)
        regions[i][1].intact(f'pair {i}')


@check('a stuck queue pair does not hold up others')
def independent(a, b):
    x, y = pair(a, b, rnr_timer=31)
    src = x.mr(1 << 20)
    for i in range(20):
        x.send('send', wr_id=i, sges=[src.sge()])
    u, v = pair(a, b)
    one, two = u.mr(4096), v.mr(4096)
    for turn in range(50):
        one.fill(turn)
        u.send('write', wr_id=turn, sges=[one.sge()], addr=two.addr, rkey=two.rkey)
        u.sent(id=turn, wait=5.0)
    two.note(49)
    two.intact()
    x.nothing(0.05)
