# SPDX-License-Identifier: Apache-2.0
"""Each way to fail: the status on both sides, the states, the flush, and that
a refused request changes nothing."""

import time

from checks import check, every
from pair import Side, connect, counters, moved, pair, same, want

PROT, ACC = 'loc_prot_err', 'rem_access_err'


def local_failure(x, y, post, status, keep=(), answered=False):
    """The requester's own fault: nobody else is in error, all else is flushed."""
    y.recv(50, [])
    post()
    for i in range(3):
        x.send('send', wr_id=100 + i, sges=[[0, 0, 0]])
    for i in range(2):
        x.recv(200 + i)
    x.sent(status, id=1)
    x.all_flushed(3, 2)
    x.state('err')
    for r in keep:
        r.intact()
    if not answered:  # else what stood behind may be there before the answer is
        y.nothing(0.1)
    y.state('rts')


LOCAL = {
    'send with an unknown key': lambda x, m: dict(op='send', sges=[[m.addr, 8, m.lkey ^ 0x10]]),
    'send with a key of no region': lambda x, m: dict(op='send', sges=[[m.addr, 8, 0xfffff00]]),
    'send with key 0': lambda x, m: dict(op='send', sges=[[m.addr, 8, 0]]),
    'send from beyond the end': lambda x, m: dict(op='send', sges=[[m.addr + 4090, 8, m.lkey]]),
    'send from before the start': lambda x, m: dict(op='send', sges=[[m.addr - 1, 8, m.lkey]]),
    'send that wraps at 2^64': lambda x, m: dict(op='send', sges=[[(1 << 64) - 4, 8, m.lkey]]),
    'write with a bad second piece': lambda x, m: dict(op='write', sges=[[m.addr, 8, m.lkey], [m.addr, 8, m.lkey ^ 1]]),
    'send from another protection domain': lambda x, m: dict(op='send', sges=[[m.addr, 8, m.foreign.lkey]]),
    'read into memory without local write': lambda x, m: dict(op='read', sges=[[m.readonly.addr, 8, m.readonly.lkey]]),
    'read into an unknown key': lambda x, m: dict(op='read', sges=[[m.addr, 8, m.lkey ^ 0x10]]),
    'atomic into memory without local write': lambda x, m: dict(op='faa', sges=[[m.readonly.addr, 8, m.readonly.lkey]]),
}


@every('requester:', list(LOCAL), patched=True)
def local_protection(a, b, name):
    x, y = pair(a, b, caps_a={'send_sge': 2})
    m, far = x.mr(4096), y.mr(4096)
    m.readonly = x.mr(4096, '')
    m.foreign = type(m)(a, a.pd(), 4096)
    before = counters(a, 'req_rx_cqe_err', 'req_tx_loc_acc_err')
    args = LOCAL[name](x, m)
    local_failure(x, y, lambda: x.send(wr_id=1, addr=far.addr, rkey=far.rkey, **args), PROT,
                  (m, m.readonly, m.foreign, far), args['op'] in ('read', 'faa'))
    moved(a, before, req_rx_cqe_err=1, req_tx_loc_acc_err=1)


def remote_failure(a, b, args, status, y_rights='lwra', event='qp_access_err'):
    """The responder refuses: both sides end in error, everything is flushed, and
    no byte changes."""
    x, y = pair(a, b, caps_a={'send_sge': 2})
    b.to_state(y.qp, 'reset')
    a.to_state(x.qp, 'reset')
    connect(x, y, rights=y_rights)
    src = x.mr(8192)
    far, ro, wo = y.mr(4096), y.mr(4096, 'lr'), y.mr(4096, 'lw')
    foreign = type(far)(b, b.pd(), 4096)
    before = counters(b, 'resp_rx_cqe_flush')
    for i in range(2):
        y.recv(300 + i, [far.sge(0, 8)])
    y.send('write', wr_id=400, sges=[[0, 0, 0]], flags='', addr=0, rkey=0)
    b.async_events()
    x.send(wr_id=1, **args(src, far, ro, wo, foreign))
    for i in range(2):
        x.send('send', wr_id=100 + i, sges=[[0, 0, 0]])
        x.recv(200 + i)
    x.sent(status, id=1)
    x.all_flushed(2, 2)
    same({w['status'] for w in y.ep.poll(y.rcq, 2)}, {'wr_flush_err'}, 'receives of the responder')
    x.state('err')
    y.state('err')
    same(b.async_events(30.0), [event], 'asynchronous events of the responder')
    moved(b, before, resp_rx_cqe_flush=1)
    for r in (src, far, ro, wo, foreign):
        r.intact()


REMOTE = {
    'write with an unknown key': lambda s, far, ro, wo, foreign: dict(
        op='write', sges=[s.sge(0, 8)], addr=far.addr, rkey=far.rkey ^ 1),
    'write with key 0': lambda s, far, ro, wo, foreign: dict(op='write', sges=[s.sge(0, 8)], addr=far.addr, rkey=0),
    'write beyond the end': lambda s, far, ro, wo, foreign: dict(
        op='write', sges=[s.sge(0, 8)], addr=far.addr + 4089, rkey=far.rkey),
    'write of more than the region': lambda s, far, ro, wo, foreign: dict(
        op='write', sges=[s.sge(0, 8192)], addr=far.addr, rkey=far.rkey),
    'write before the start': lambda s, far, ro, wo, foreign: dict(
        op='write', sges=[s.sge(0, 8)], addr=far.addr - 1, rkey=far.rkey),
    'write that wraps at 2^64': lambda s, far, ro, wo, foreign: dict(
        op='write', sges=[s.sge(0, 8)], addr=(1 << 64) - 4, rkey=far.rkey),
    'write without permission': lambda s, far, ro, wo, foreign: dict(
        op='write', sges=[s.sge(0, 8)], addr=ro.addr, rkey=ro.rkey),
    'write into another protection domain': lambda s, far, ro, wo, foreign: dict(
        op='write', sges=[s.sge(0, 8)], addr=foreign.addr, rkey=foreign.rkey),
    'read without permission': lambda s, far, ro, wo, foreign: dict(
        op='read', sges=[s.sge(0, 8)], addr=wo.addr, rkey=wo.rkey),
    'read beyond the end': lambda s, far, ro, wo, foreign: dict(
        op='read', sges=[s.sge(0, 8192)], addr=far.addr, rkey=far.rkey),
    'read with an unknown key': lambda s, far, ro, wo, foreign: dict(
        op='read', sges=[s.sge(0, 8)], addr=far.addr, rkey=0xfffff00),
    'atomic without permission': lambda s, far, ro, wo, foreign: dict(
        op='faa', sges=[s.sge(0, 8)], addr=wo.addr, rkey=wo.rkey, compare_add=1),
    'atomic beyond the end': lambda s, far, ro, wo, foreign: dict(
        op='cas', sges=[s.sge(0, 8)], addr=far.addr + 4096, rkey=far.rkey, compare_add=1),
}


@every('responder refuses', list(REMOTE), patched=True)
def remote_access(a, b, name):
    remote_failure(a, b, REMOTE[name], ACC)


QP_RIGHTS = {'write': 'lra', 'read': 'lwa', 'faa': 'lwr'}


@every('responder refuses without the right of its QP:', list(QP_RIGHTS), patched=True)
def qp_rights(a, b, op):
    remote_failure(a, b, lambda s, far, *_: dict(op=op, sges=[s.sge(0, 8)], addr=far.addr, rkey=far.rkey), ACC,
                   y_rights=QP_RIGHTS[op])


@every('responder refuses a misaligned atomic:', ['faa', 'cas'], patched=True)
def misaligned(a, b, op):
    remote_failure(a, b, lambda s, far, *_: dict(op=op, sges=[s.sge(0, 8)], addr=far.addr + 4, rkey=far.rkey),
                   'rem_inv_req_err', event='qp_req_err')


@check('send longer than the receive', patched=True)
def longer(a, b):
    x, y = pair(a, b)
    src, dst = x.mr(4096), y.mr(4096)
    y.recv(7, [dst.sge(100, 1000)])
    y.recv(8, [dst.sge()])
    before = counters(b, 'resp_rx_cqe_err', 'resp_rx_loc_len_err')
    x.send('send', wr_id=1, sges=[src.sge(0, 1001)])
    x.send('send', wr_id=2, sges=[src.sge(0, 1)])
    x.sent('rem_inv_req_err', id=1)
    y.received('loc_len_err', id=7)
    x.all_flushed(1, 0)
    y.all_flushed(0, 1)
    x.state('err')
    y.state('err')
    moved(b, before, resp_rx_cqe_err=1, resp_rx_loc_len_err=1)
    src.intact()


@every('send into a receive', ['with an unknown key', 'without local write', 'beyond its region', 'with a bad second piece'],
       patched=True)
def bad_receive(a, b, name):
    x, y = pair(a, b, caps_b={'recv_sge': 2})
    src, dst, ro = x.mr(4096), y.mr(4096), y.mr(4096, '')
    sges = {'with an unknown key': [[dst.addr, 100, dst.lkey ^ 0x10]], 'without local write': [ro.sge(0, 100)],
            'beyond its region': [[dst.addr + 4090, 100, dst.lkey]],
            'with a bad second piece': [dst.sge(0, 4), [dst.addr + 8, 96, dst.lkey ^ 1]]}[name]
    y.recv(7, sges)
    y.recv(8, [dst.sge()])
    x.send('send', wr_id=1, sges=[src.sge(0, 100)])
    x.sent('rem_op_err', id=1)
    y.received('loc_prot_err', id=7)
    y.all_flushed(0, 1)
    x.state('err')
    y.state('err')
    src.intact()
    ro.intact()
    if 'second' not in name:
        dst.intact()


def timed(x, status, *posts):
    """Posts, and waits for the first to fail with the status: how long it took.
    The clock starts before, since a busy guest may be late after."""
    begun = time.monotonic()
    for args in posts:
        x.send(**args)
    x.sent(status, id=posts[0]['wr_id'])
    return time.monotonic() - begun


@every('no receive, retries', [0, 1, 3, 6], patched=True)
def rnr(a, b, retries):
    # 122.88 ms, so that the count can be told from the time.
    x, y = pair(a, b, rnr_retries=retries, rnr_timer=27)
    src = x.mr(64)
    before = counters(a, 'req_rx_rnr_retry_err')
    took = timed(x, 'rnr_retry_exc_err', *({'op': 'send', 'wr_id': i, 'sges': [src.sge()]} for i in (1, 2)))
    want(took >= 0.12 * retries, f'gave up after {took:.2f} s, {retries} waits are {0.12288 * retries:.2f} s')
    x.all_flushed(1, 0)
    x.state('err')
    y.state('rts')
    y.nothing(0.05)
    moved(a, before, req_rx_rnr_retry_err=1)
    return f'{took:.2f} s'


@check('no receive, retries without end')
def rnr_for_ever(a, b):
    x, y = pair(a, b, rnr_retries=7, rnr_timer=20)
    src, dst, word = x.mr(5000), y.mr(5000), y.mr(8)
    src.fill(1)
    x.send('send', wr_id=1, sges=[src.sge()])
    # What is behind it waits for it.
    x.send('write', wr_id=2, sges=[src.sge(0, 8)], addr=word.addr, rkey=word.rkey)
    x.nothing(1.5)
    word.intact('memory of a write behind the send')
    y.recv(5, [dst.sge()])
    x.sent(id=1)
    x.sent(id=2)
    y.received(id=5, len=5000)
    dst.note(1)
    dst.intact()
    word.note(1)
    word.intact()


@check('write with immediate without a receive')
def rnr_write_imm(a, b):
    x, y = pair(a, b, rnr_timer=20)
    src, dst = x.mr(5000), y.mr(5000)
    src.fill(1)
    x.send('write_imm', wr_id=1, sges=[src.sge()], addr=dst.addr, rkey=dst.rkey, imm=6)
    x.nothing(0.5)
    y.recv(5)
    x.sent(id=1)
    y.received(id=5, len=5000, imm=6)
    dst.note(1)
    dst.intact()


@every('nobody answers:', ['no such QP', 'QP of another peer', 'QP in reset', 'QP in error'], patched=True)
def silence(a, b, name):
    x = Side(a, 'rc')
    y = Side(b, 'rc')
    attr = {'timeout': 15, 'retries': 2}  # 134 ms
    connect(x, y, **attr)
    if name == 'no such QP':
        b.destroy(y.qp)
    elif name == 'QP of another peer':
        b.to_state(y.qp, 'reset')
        other = Side(a, 'rc')
        g = a.gids()['ipv4']
        b.to_init(y.qp)
        b.to_rtr(y.qp, qpn=other.qpn, dgid=g[1], gid_index=b.gids()['ipv4'][0], psn=0xfffff0)
        b.to_rts(y.qp)
    else:
        b.to_state(y.qp, 'reset' if 'reset' in name else 'err')
    src = x.mr(64)
    before = counters(a, 'tx_rdma_ack_timeout', 'req_tx_retry_excd_err')
    took = timed(x, 'retry_exc_err', {'op': 'write', 'wr_id': 1, 'sges': [src.sge()], 'addr': 4096, 'rkey': 1},
                 {'op': 'send', 'wr_id': 2, 'sges': [src.sge()]})
    want(0.3 <= took <= 30, f'gave up after {took:.2f} s, three times 134 ms are due')
    x.all_flushed(1, 0)
    x.state('err')
    moved(a, before, tx_rdma_ack_timeout=2, req_tx_retry_excd_err=1)
    return f'{took:.2f} s'


@every('requester may have no', ['read', 'faa', 'cas'], patched=True)
def no_reads(a, b, op):
    x, y = pair(a, b)
    a.to_state(x.qp, 'reset')
    b.to_state(y.qp, 'reset')
    connect(x, y, depth=0)
    src, far = x.mr(64), y.mr(64)
    local_failure(x, y, lambda: x.send(op, wr_id=1, sges=[src.sge(0, 8)], addr=far.addr, rkey=far.rkey),
                  'loc_qp_op_err', (src, far))


@check('failing message behind good ones')
def good_ones_first(a, b):
    x, y = pair(a, b)
    src, dst = x.mr(64), y.mr(640)
    src.fill(3)
    for i in range(10):
        x.send('write', wr_id=i, sges=[src.sge()], flags='signaled' if i % 3 == 0 else '', addr=dst.addr + 64 * i,
               rkey=dst.rkey)
    x.send('write', wr_id=10, sges=[src.sge()], flags='', addr=dst.addr, rkey=dst.rkey ^ 1)
    for i in (11, 12):
        x.send('write', wr_id=i, sges=[src.sge()], flags='', addr=dst.addr, rkey=dst.rkey)
    got = [(w['id'], w['status']) for w in x.ep.poll(x.scq, 7)]
    same(got, [(0, 'success'), (3, 'success'), (6, 'success'), (9, 'success'), (10, ACC),
               (11, 'wr_flush_err'), (12, 'wr_flush_err')], 'completions')
    for i in range(10):
        dst.note(3, 64 * i, 64)
    dst.intact()


@check('uc: what is refused is dropped', patched=True)
def uc_drops(a, b):
    x, y = pair(a, b, 'uc')
    src, dst = x.mr(9000), y.mr(9000)
    src.fill(1)
    for args in (dict(op='write', sges=[src.sge()], addr=dst.addr, rkey=dst.rkey ^ 1),
                 dict(op='write', sges=[src.sge()], addr=dst.addr + 1, rkey=dst.rkey),
                 dict(op='send', sges=[src.sge(0, 64)])):
        x.send(**args)
        x.sent()
    dst.intact('after refused messages')
    y.recv(1, [dst.sge(0, 10)])
    x.send('send', sges=[src.sge(0, 64)])  # too long: its receive stays
    x.sent()
    x.send('send', sges=[src.sge(0, 10)])
    x.sent()
    y.received(id=1, len=10)
    y.state('rts')
