# SPDX-License-Identifier: Apache-2.0
"""Payload: each operation, each length, how it is cut into pieces."""

from checks import check, every
from pair import connect, pair, same, want

BRIEF_SIZES = [1, 1025, 65536 + 3]
USUAL_SIZES = [7, 64, 1023, 1024, 4096, 1 << 20]
LONG_SIZES = [2, 4095, 4097, 262143, 262144, 262145, (8 << 20) + 5]
ALL = sorted(BRIEF_SIZES + USUAL_SIZES + LONG_SIZES)


def transfer(x, y, op, size, offset=5):
    """One message of the operation, with memory of both sides looked at."""
    src, dst = x.mr(max(size, 8), offset=offset), y.mr(max(size, 8), offset=3)
    imm = 0x12345678
    if op == 'read':
        dst.fill(size, 0, size)
        x.send('read', wr_id=9, sges=[src.sge(0, size)], addr=dst.addr, rkey=dst.rkey)
        x.sent(op='read', id=9, len=size, qpn=x.qpn)
        src.note(size, 0, size)
    else:
        src.fill(size, 0, size)
        if op.startswith('send'):
            y.recv(77, [dst.sge(0, size)])
        elif op == 'write_imm':
            y.recv(77)
        x.send(op, wr_id=9, sges=[src.sge(0, size)], imm=imm, addr=dst.addr, rkey=dst.rkey)
        x.sent(op={'send_imm': 'send', 'write_imm': 'write'}.get(op, op), id=9, qpn=x.qpn)
        dst.note(size, 0, size)
        if op != 'write':
            w = y.received(op='recv_write_imm' if op == 'write_imm' else 'recv', id=77, len=size, qpn=y.qpn,
                           src_qp=x.qpn, with_imm=op.endswith('imm'))
            if op.endswith('imm'):
                same(w['imm'], imm, 'immediate')
        elif x.kind != 'rc':
            # No acknowledgement: a message behind it tells that it is there.
            y.recv(78)
            x.send('write_imm', sges=[src.sge(0, 0)], addr=dst.addr, rkey=dst.rkey)
            x.sent()
            y.received(id=78, len=0)
    src.intact('requester')
    dst.intact('responder')
    x.ep.destroy(src.mr)
    y.ep.destroy(dst.mr)


for op in ('send', 'send_imm', 'write', 'write_imm', 'read'):
    @every(f'rc {op}', ALL, usual=USUAL_SIZES, long=LONG_SIZES)
    def rc_op(a, b, size, op=op):
        x, y = pair(a, b)
        transfer(x, y, op, size)

    if op != 'read':
        @every(f'uc {op}', [1, 1025, 65539, (4 << 20) + 1, 16 << 20],
               usual=[1, 1025, (4 << 20) + 1], long=[16 << 20], patched=True)
        def uc_op(a, b, size, op=op):
            x, y = pair(a, b, 'uc')
            transfer(x, y, op, size)

    @check(f'rc {op} 0')
    def rc_nothing(a, b, op=op):
        x, y = pair(a, b)
        src, dst = x.mr(64), y.mr(64)
        y.recv(5, [dst.sge()])
        # The key is not looked at when there is nothing to move.
        x.send(op, wr_id=1, sges=[src.sge(0, 0)], imm=9, addr=dst.addr, rkey=dst.rkey)
        x.sent(id=1)
        if op in ('send', 'send_imm', 'write_imm'):
            y.received(id=5, len=0)
        src.intact()
        dst.intact()


@every('rc path mtu', [256, 512, 1024], usual=[512, 1024])
def path_mtu(a, b, mtu):
    x, y = pair(a, b, mtu=mtu)
    same(a.query(x.qp)['path_mtu'], mtu.bit_length() - 8, 'queried path MTU')
    for op in ('send', 'write', 'read'):
        for size in (mtu - 1, mtu, mtu + 1, 17 * mtu + 5):
            transfer(x, y, op, size)


@check('rc over ipv6 link-local')
def ipv6(a, b):
    x, y = pair(a, b, family='ipv6')
    for op in ('send_imm', 'write', 'read'):
        transfer(x, y, op, 5000)


def pieces(region, lengths, gap=11):
    """SGEs of the lengths with gaps between them, and the offset of each."""
    out, at, offsets = [], 3, []
    for n in lengths:
        out.append(region.sge(at, n))
        offsets.append(at)
        at += n + gap
    return out, offsets


CUTS = {'2': [5, 8192], '3': [1, 2, 3], '4 with empty ones': [0, 4096, 0, 1], '8': [1, 4095, 4096, 4097, 7, 8, 65536, 3]}


@every('rc scatter and gather', list(CUTS), usual=['2', '3'])
def scatter(a, b, name):
    lengths = CUTS[name]
    total = sum(lengths)
    caps = {'send_sge': 8, 'recv_sge': 8}
    for op in ('send', 'write', 'read'):
        x, y = pair(a, b, caps_a=caps, caps_b=caps)
        src, dst = x.mr(total + 200), y.mr(total + 200)
        mine, at = pieces(src, lengths)
        theirs, to = pieces(dst, list(reversed(lengths)), gap=2)
        flat = 100
        if op == 'read':
            dst.fill(1, flat, total)
        else:
            done = 0
            for off, k in zip(at, lengths):
                src.fill(1, off, k, start=done)
                done += k
        if op == 'send':
            y.recv(0, theirs)
        x.send(op, sges=mine, addr=dst.addr + flat, rkey=dst.rkey)
        x.sent()
        target, offsets, parts = {'send': (dst, to, list(reversed(lengths))), 'write': (dst, [flat], [total]),
                                  'read': (src, at, lengths)}[op]
        done = 0
        for off, k in zip(offsets, parts):
            target.note(1, off, k, start=done)
            done += k
        if op == 'send':
            y.received(len=total)
        src.intact(op + ' requester')
        dst.intact(op + ' responder')


@every('rc inline', ['send', 'send_imm', 'write', 'write_imm'])
def inline(a, b, op):
    x, y = pair(a, b, caps_a={'inline': 400})
    want(x.inline >= 400, f'{x.inline} bytes of inline data offered')
    dst = y.mr(512)
    src = x.mr(512)
    for n in (1, 8, 31, 32, 33, 100, 236, 399, 400):
        src.fill(n, 0, n)
        if op != 'write':
            y.recv(n, [dst.sge(0, n)] if op.startswith('send') else [])
        # The key of inline data is never looked at.
        x.send(op, sges=[[src.addr, n, 0xdead]], flags='signaled inline', addr=dst.addr, rkey=dst.rkey, imm=n)
        # The memory is free as soon as the call returns.
        src.fill(n + 1000, 0, n)
        x.sent()
        if op != 'write':
            y.received(id=n, len=n)
        dst.note(n, 0, n)
        dst.intact(f'{n} bytes')


@check('rc 10000 messages in order', 'usual')
def in_order(a, b):
    x, y = pair(a, b)
    src, dst = x.mr(8 * 60), y.mr(8)
    n, posted = 10000, 0
    for i in range(60):
        src.store64(8 * i, i)
    y.ep.post_recvs(y.qp, 60, [dst.sge()], 0)
    for turn in range(n // 50):
        for i in range(50):
            x.send('send', wr_id=posted, sges=[src.sge(8 * (posted % 60), 8)], flags='signaled' if i == 49 else '')
            posted += 1
        x.sent(id=posted - 1)
        got = y.ep.poll(y.rcq, 50)
        same(len(got), 50, f'messages received in turn {turn}')
        same([w['id'] for w in got], list(range(turn * 50, turn * 50 + 50)), 'order of receives')
        same(dst.load64(), (posted - 1) % 60, 'the last message')
        y.ep.post_recvs(y.qp, 50, [dst.sge()], turn * 50 + 60)


@check('rc writes arrive before the send behind them')
def write_then_send(a, b):
    x, y = pair(a, b)
    src, dst, note = x.mr(65536), y.mr(65536), y.mr(8)
    for turn in range(30):
        src.fill(turn)
        y.recv(turn, [note.sge()])
        x.send('write', sges=[src.sge()], flags='', addr=dst.addr, rkey=dst.rkey)
        x.send('send', wr_id=turn, sges=[src.sge(0, 8)])
        y.received(id=turn)
        dst.note(turn)
        dst.intact(f'turn {turn}')
        x.sent(id=turn)


@check('rc fence waits for the read before it')
def fence(a, b):
    x, y = pair(a, b)
    buf, far, sink = x.mr(65536), y.mr(65536), y.mr(65536)
    for turn in range(20):
        far.fill(turn)
        y.recv(turn, [sink.sge()])
        x.send('read', sges=[buf.sge()], flags='', addr=far.addr, rkey=far.rkey)
        x.send('send', wr_id=turn, sges=[buf.sge()], flags='signaled fence')
        x.sent(id=turn)
        y.received(id=turn, len=65536)
        buf.note(turn)
        sink.note(turn)
        buf.intact()
        sink.intact('what the fenced send carried')


@check('rc 16 reads under way at once')
def many_reads(a, b):
    x, y = pair(a, b)
    buf, far = x.mr(48 * 4096), y.mr(48 * 4096)
    far.fill(4)
    for i in range(48):
        x.send('read', wr_id=i, sges=[buf.sge(i * 4096, 4096)], addr=far.addr + i * 4096, rkey=far.rkey)
    got = x.ep.poll(x.scq, 48)
    same([(w['id'], w['status']) for w in got], [(i, 'success') for i in range(48)], 'completions')
    buf.note(4)
    buf.intact()


@every('rc rings wrap, depth', [16, 255, 4096, 32767], usual=[16], long=[4096, 32767])
def deep(a, b, depth):
    caps = {'send_wr': depth, 'recv_wr': depth, 'cqe': depth + 8}
    x, y = pair(a, b, caps_a=caps, caps_b=caps)
    src, dst = x.mr(64), y.mr(64)
    src.fill(1)
    turns = 3 if depth < 5000 else 2
    for turn in range(turns):
        y.ep.post_recvs(y.qp, depth, [dst.sge()], turn * depth)
        x.ep.post_sends(x.qp, 'send', depth, turn * depth, sges=[src.sge()])
        for s, cq in ((x, x.scq), (y, y.rcq)):
            got = s.ep.poll(cq, depth, 120)
            same(len(got), depth, 'completions')
            same([w['id'] for w in got], list(range(turn * depth, turn * depth + depth)), 'order')
            same({w['status'] for w in got}, {'success'}, 'status')
    dst.note(1)
    dst.intact()


@check('rc unsignalled work is reclaimed')
def unsignalled(a, b):
    x, y = pair(a, b, caps_a={'send_wr': 31})
    src, dst = x.mr(64), y.mr(64)
    src.fill(2)
    for turn in range(40):
        for i in range(30):
            x.send('write', sges=[src.sge()], flags='', addr=dst.addr, rkey=dst.rkey)
        x.send('write', wr_id=turn, sges=[src.sge()], addr=dst.addr, rkey=dst.rkey)
        x.sent(id=turn)
    x.nothing(0.05)
    dst.note(2)
    dst.intact()


@check('rc reset and connect again')
def again(a, b):
    x, y = pair(a, b)
    for turn in range(5):
        transfer(x, y, 'send_imm', 3000)
        transfer(y, x, 'write', 3000)
        for s in (x, y):
            if turn % 2:
                s.ep.to_state(s.qp, 'err')
            s.ep.to_state(s.qp, 'reset')
        connect(x, y)


@check('rc query returns what was set')
def query(a, b):
    x, y = pair(a, b, timeout=11, retries=3, rnr_retries=5, depth=4, rnr_timer=9)
    got = a.query(x.qp)
    for k in ('max_rd_atomic', 'max_dest_rd_atomic'):
        want(4 <= got[k] <= 7, f'{k}: {got[k]}, the driver rounds 4 up to 7 at most')
    for k, v in {'path_mtu': 3, 'sq_psn': 0xfffff0, 'rq_psn': 0xffff80, 'dest_qp_num': y.qpn, 'min_rnr_timer': 9, 'timeout': 11, 'retry_cnt': 3, 'rnr_retry': 5}.items():
        same(got[k], v, k)
    transfer(x, y, 'send', 5000)
    same(a.query(x.qp)['sq_psn'], (0xfffff0 + 5) & 0xffffff, 'PSN after five packets')
    same(b.query(y.qp)['rq_psn'], (0xfffff0 + 5) & 0xffffff, 'expected PSN after five packets')
