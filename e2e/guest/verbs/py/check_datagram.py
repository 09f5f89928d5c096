# SPDX-License-Identifier: Apache-2.0
"""UD: what is in front of a datagram, who gets it, and what is dropped."""

from checks import check, every
from pair import counters, datagrams, moved, same, want

QKEY = 0x11111111


def one(x, y, size, seed, op='send', src=None, **kwargs):
    """A datagram that arrives, and its completion."""
    src = src or x.mr(max(size, 1))
    if size:
        src.fill(seed, 0, size)
    box = y.mr(40 + max(size, 1))
    y.recv(seed, [box.sge(0, 40 + size)])
    x.send(op, sges=[src.sge(0, size)], ah=x.ah, qpn=y.qpn, qkey=QKEY, imm=seed, **kwargs)
    x.sent(op='send')
    w = y.received(op='recv', id=seed, len=40 + size, src_qp=x.qpn, grh=True, with_imm=op == 'send_imm')
    head = bytes.fromhex(y.ep.load(box.mr, 0, 40))
    y.ep.note_bytes(box.mr, 0, head.hex())
    if size:
        box.note(seed, 40, size)
    box.intact(f'datagram of {size} bytes')
    return box, w, head


@every('ud send', [0, 1, 3, 64, 1000, 1024], usual=[3, 64, 1000])
def send(a, b, size):
    x, y = datagrams(a, b)
    one(x, y, size, 3)
    _, w, _ = one(x, y, size, 4, 'send_imm')
    same(w['imm'], 4, 'immediate')


def checksum(h):
    s = sum(int.from_bytes(h[i:i + 2], 'big') for i in range(0, 20, 2))
    while s >> 16:
        s = (s & 0xffff) + (s >> 16)
    return s


@check('ud header of ipv4')
def ipv4(a, b):
    x, y = datagrams(a, b)
    for size in (1, 2, 3, 4, 500):
        _, _, h = one(x, y, size, size)
        same(h[:20], bytes(20), 'first 20 bytes')
        ip = h[20:]
        same(ip[0], 0x45, 'version and header length')
        same(int.from_bytes(ip[2:4], 'big'), 20 + 8 + 12 + 8 + (size + 3) // 4 * 4 + 4, 'total length')
        same(ip[9], 17, 'protocol')
        same(checksum(ip), 0xffff, 'checksum')
        for at, ep, who in ((12, a, 'source'), (16, b, 'destination')):
            gid = bytes.fromhex(ep.gids()['ipv4'][1].replace(':', ''))
            same(ip[at:at + 4], gid[12:], who)


@check('ud header of ipv6')
def ipv6(a, b):
    x, y = datagrams(a, b, 'ipv6')
    for size in (1, 4, 500):
        _, _, h = one(x, y, size, size)
        same(h[0] >> 4, 6, 'version')
        same(h[6], 17, 'next header')
        for at, ep, who in ((8, a, 'source'), (24, b, 'destination')):
            same(h[at:at + 16], bytes.fromhex(ep.gids()['ipv6'][1].replace(':', '')), who)


@every('ud answer to the sender of a datagram over', ['ipv4', 'ipv6'])
def answer(a, b, family):
    x, y = datagrams(a, b, family)
    for turn in range(3):
        box, w, _ = one(x, y, 100, turn)
        y.ah = b.ah_from_datagram(y.pd, w, box.mr)
        one(y, x, 100, turn + 50)


@every('ud dropped:', ['wrong Q_Key', 'no such QP', 'no receive', 'too long for the receive'])
def dropped(a, b, name):
    x, y = datagrams(a, b)
    src, box = x.mr(600), y.mr(640)
    src.fill(1)
    names = {'wrong Q_Key': 'rx_rdma_drop_qkey', 'no such QP': 'rx_rdma_drop_no_qp', 'no receive': 'rx_rdma_drop_no_buffer'}
    before = counters(b, *names.values())
    args = {'ah': x.ah, 'qpn': y.qpn, 'qkey': QKEY}
    if name != 'no receive':
        y.recv(1, [box.sge(0, 500)])
    if name == 'wrong Q_Key':
        args['qkey'] = QKEY + 1
    elif name == 'no such QP':
        args['qpn'] = 0x3ffe
    size = 600 if name == 'too long for the receive' else 100
    x.send('send', sges=[src.sge(0, size)], **args)
    x.sent()  # never an error
    y.nothing(0.3)
    box.intact()
    if name in names:
        moved(b, before, **{names[name]: 1})
    if name == 'no receive':
        y.recv(1, [box.sge(0, 500)])
    # The receive is still there, and the sender still works.
    x.send('send', sges=[src.sge(0, 100)], ah=x.ah, qpn=y.qpn, qkey=QKEY)
    x.sent()
    y.received(id=1, len=140)


@check('ud send longer than any datagram', patched=True)
def too_long(a, b):
    x, y = datagrams(a, b)
    src, box = x.mr(4097), y.mr(4137)
    y.recv(1, [box.sge()])
    x.send('send', wr_id=1, sges=[src.sge()], ah=x.ah, qpn=y.qpn, qkey=QKEY)
    x.send('send', wr_id=2, sges=[src.sge(0, 1)], ah=x.ah, qpn=y.qpn, qkey=QKEY)
    x.sent('loc_len_err', id=1)
    x.all_flushed(1, 0)
    x.state('sqe')
    y.nothing(0.1)
    box.intact()
    # Its receives go on.
    y.ah = b.ah(y.pd, b.gids()['ipv4'][0], a.gids()['ipv4'][1])
    mine, theirs = x.mr(48), y.mr(8)
    x.recv(3, [mine.sge()])
    y.send('send', sges=[theirs.sge()], ah=y.ah, qpn=x.qpn, qkey=QKEY)
    y.sent()
    x.received(id=3, len=48)


@check('ud with the Q_Key of its own QP')
def own_qkey(a, b):
    x, y = datagrams(a, b, qkeys=(0x22222222, 0x22222222))
    src, box = x.mr(64), y.mr(104)
    y.recv(1, [box.sge()])
    x.send('send', sges=[src.sge()], ah=x.ah, qpn=y.qpn, qkey=0x80000000)
    x.sent()
    y.received(id=1, len=104)


@check('ud inline and unsignalled')
def unsignalled(a, b):
    x, y = datagrams(a, b, inline=200, recv_wr=128)
    src, box = x.mr(200), y.mr(240)
    y.ep.post_recvs(y.qp, 120, [box.sge()])
    # More than the queue holds: unsignalled ones must be reclaimed.
    for i in range(120):
        src.fill(i)
        x.send('send', wr_id=i, sges=[src.sge()], flags='inline signaled' if i % 30 == 29 else 'inline', ah=x.ah,
               qpn=y.qpn, qkey=QKEY)
        if i % 30 == 29:
            x.sent(id=i)
    same(len(y.ep.poll(y.rcq, 120, 20)), 120, 'datagrams received')
    x.nothing(0.05)
    y.ep.note_bytes(box.mr, 0, y.ep.load(box.mr, 0, 40))
    box.note(119, 40, 200)
    box.intact('the last datagram')


@check('ud to two queue pairs in turn')
def several(a, b):
    x, y = datagrams(a, b)
    u, z = datagrams(a, b)
    for turn in range(10):
        one(x, y, 50, turn)
        z_box = z.mr(140)
        z.recv(turn, [z_box.sge()])
        src = x.mr(100)
        x.send('send', sges=[src.sge()], ah=x.ah, qpn=z.qpn, qkey=QKEY)
        x.sent()
        z.received(id=turn, len=140, src_qp=x.qpn)
