# SPDX-License-Identifier: Apache-2.0
"""One side of a check: RDMA objects by number, memory, and the work on them."""

import os
import select
import time

from pyverbs.addr import AH, AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ, CompChannel, WC
from pyverbs.device import Context
from pyverbs import libibverbs_enums as e
from pyverbs.mr import MR, MW, MWBind, MWBindInfo
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import RecvWR, SGE, SendWR

import memory

def table(enum, prefix):
    """The members of an enumeration by their short names."""
    return {n.removeprefix(prefix).lower(): int(v) for n, v in enum.__members__.items()}


def names(enum, prefix):
    return {v: n for n, v in table(enum, prefix).items()}


KINDS = table(e.ibv_qp_type, 'IBV_QPT_')
STATES = table(e.ibv_qp_state, 'IBV_QPS_')
MASKS = table(e.ibv_qp_attr_mask, 'IBV_QP_')
FLAGS = table(e.ibv_send_flags, 'IBV_SEND_')
STATUS = names(e.ibv_wc_status, 'IBV_WC_')
EVENTS = names(e.ibv_event_type, 'IBV_EVENT_')
WC_FLAGS = table(e.ibv_wc_flags, 'IBV_WC_')
RIGHTS = table(e.ibv_access_flags, 'IBV_ACCESS_')
ACCESS = {'l': RIGHTS['local_write'], 'w': RIGHTS['remote_write'], 'r': RIGHTS['remote_read'],
          'a': RIGHTS['remote_atomic'], 'b': RIGHTS['mw_bind'], 'z': RIGHTS['zero_based']}
SHORT = {'send_with_imm': 'send_imm', 'send_with_inv': 'send_inv', 'rdma_write': 'write', 'rdma_write_with_imm': 'write_imm',
         'rdma_read': 'read', 'atomic_cmp_and_swp': 'cas', 'atomic_fetch_and_add': 'faa', 'bind_mw': 'bind',
         'comp_swap': 'cas', 'fetch_add': 'faa', 'recv_rdma_with_imm': 'recv_write_imm'}
OPS = {SHORT.get(n, n): v for n, v in table(e.ibv_wr_opcode, 'IBV_WR_').items()}
OPCODES = {v: SHORT.get(n, n) for v, n in names(e.ibv_wc_opcode, 'IBV_WC_').items()}


def access(letters):
    return sum(ACCESS[c] for c in letters)


def event_fds():
    """The file descriptors of event channels that this process has open."""
    fds = set()
    for name in os.listdir('/proc/self/fd'):
        try:
            if 'infinibandevent' in os.readlink('/proc/self/fd/' + name):
                fds.add(int(name))
        except OSError:
            pass  # the descriptor of the listing itself
    return fds


class Endpoint:
    def __init__(self, device='ionic_0'):
        self.device = device
        self.ctx = None
        self.reset()

    def reset(self):
        """Ends all objects and opens the device anew."""
        if self.ctx is not None:
            for kind in ('ah', 'qp', 'mw', 'mr', 'cq', 'channel', 'pd'):
                for n in [n for n, (k, _) in self.objects.items() if k == kind]:
                    self.destroy(n)
            self.ctx.close()
        before = event_fds()
        self.ctx = Context(name=self.device)
        self.async_fd, = event_fds() - before
        self.objects = {}
        self.channels = {}
        self.last = 0

    def _add(self, kind, obj):
        self.last += 1
        self.objects[self.last] = (kind, obj)
        return self.last

    def _get(self, number):
        return self.objects[number][1]

    def destroy(self, number):
        _, obj = self.objects.pop(number)
        obj.close()

    # What the device and the system say.

    def gids(self):
        """The entry of the GID table for an IPv4 address, and the link-local one."""
        found = {}
        for i in range(16):
            g = self.ctx.query_gid(1, i).gid
            if g.startswith('0000:0000:0000:0000:0000:ffff') and 'ipv4' not in found:
                found['ipv4'] = [i, g]
            if g.startswith('fe80') and 'ipv6' not in found:
                found['ipv6'] = [i, g]
        return found

    def mtu(self):
        return 128 << self.ctx.query_port(1).active_mtu

    def attribute(self, name):
        return getattr(self.ctx.query_device(), name)

    def counter(self, name):
        with open(f'/sys/class/infiniband/{self.device}/ports/1/hw_counters/{name}') as f:
            return int(f.read())

    def async_events(self, wait=0.0):
        """The names of the asynchronous events that came, [] after wait seconds."""
        got = []
        while select.select([self.async_fd], [], [], 0 if got else wait)[0]:
            ev = self.ctx.get_async_event()
            got.append(EVENTS.get(ev.event_type, str(ev.event_type)))
            ev.ack()
        return got

    def sleep(self, seconds):
        time.sleep(seconds)

    # Objects.

    def pd(self):
        return self._add('pd', PD(self.ctx))

    def cq(self, cqe=256, events=False, vector=0):
        channel = None
        if events:
            before = event_fds()
            channel = CompChannel(self.ctx)
            self._add('channel', channel)
        n = self._add('cq', CQ(self.ctx, cqe, None, channel, vector))
        if events:
            fd, = event_fds() - before
            self.channels[n] = (channel, fd)
        return n

    def mr(self, pd, length, rights='lwra', offset=0, memory_of=None):
        """Registers length bytes in the middle of a mapping of canary bytes,
        offset bytes behind a page border, or the memory of another region."""
        r = memory.Region(length, offset) if memory_of is None else self._get(memory_of).region
        mr = MR(self._get(pd), length, access(rights), address=r.address)
        n = self._add('mr', RegionMR(mr, r))
        return {'mr': n, 'addr': r.address, 'lkey': mr.lkey, 'rkey': mr.rkey}

    def mw(self, pd, kind):
        w = MW(self._get(pd), {1: e.ibv_mw_type.IBV_MW_TYPE_1, 2: e.ibv_mw_type.IBV_MW_TYPE_2}[kind])
        return {'mw': self._add('mw', w), 'rkey': w.rkey}

    def mw_rkey(self, mw):
        return self._get(mw).rkey

    def qp(self, kind, pd, scq, rcq, send_wr=64, recv_wr=64, send_sge=1, recv_sge=1, inline=0, sig_all=0):
        cap = QPCap(send_wr, recv_wr, send_sge, recv_sge, inline)
        init = QPInitAttr(qp_type=KINDS[kind], scq=self._get(scq), rcq=self._get(rcq), cap=cap, sq_sig_all=sig_all)
        q = QP(self._get(pd), init)
        return {'qp': self._add('qp', q), 'qpn': q.qp_num, 'inline': init.max_inline_data}

    def to_init(self, qp, rights='lwra', qkey=0x11111111):
        a = QPAttr(port_num=1)
        a.qp_access_flags = access(rights)
        a.qkey = qkey
        self._get(qp).to_init(a)

    def _path(self, a, gid_index, dgid):
        a.ah_attr = AHAttr(gr=GlobalRoute(dgid=GID(dgid), sgid_index=gid_index, hop_limit=64), is_global=1, port_num=1)

    def to_rtr(self, qp, qpn=0, dgid=None, gid_index=0, psn=0, mtu=1024, depth=16, rnr_timer=12, **_):
        a = QPAttr(port_num=1)
        a.dest_qp_num, a.rq_psn = qpn, psn
        a.path_mtu = mtu.bit_length() - 8
        a.max_dest_rd_atomic, a.min_rnr_timer = depth, rnr_timer
        if dgid is not None:
            self._path(a, gid_index, dgid)
        self._get(qp).to_rtr(a)

    def to_rts(self, qp, sq_psn=0, timeout=17, retries=7, rnr_retries=7, depth=16, **_):
        a = QPAttr()
        a.sq_psn, a.timeout, a.retry_cnt, a.rnr_retry, a.max_rd_atomic = sq_psn, timeout, retries, rnr_retries, depth
        self._get(qp).to_rts(a)

    def to_state(self, qp, state):
        a = QPAttr()
        a.qp_state = STATES[state]
        self._get(qp).modify(a, MASKS['state'])

    def state(self, qp):
        a, _ = self._get(qp).query(MASKS['state'])
        return {v: k for k, v in STATES.items()}[int(a.qp_state)]

    def query(self, qp):
        a, _ = self._get(qp).query(0x1fffff)
        return {n: getattr(a, n) for n in (
            'path_mtu', 'qkey', 'rq_psn', 'sq_psn', 'dest_qp_num', 'qp_access_flags', 'max_rd_atomic',
            'max_dest_rd_atomic', 'min_rnr_timer', 'timeout', 'retry_cnt', 'rnr_retry')}

    def ah(self, pd, gid_index, dgid):
        attr = AHAttr(gr=GlobalRoute(dgid=GID(dgid), sgid_index=gid_index, hop_limit=64), is_global=1, port_num=1)
        return self._add('ah', AH(self._get(pd), attr=attr))

    # Memory. Each region knows what it ought to hold.

    def fill(self, mr, offset, length, seed, start=0):
        self._get(mr).region.store(offset, memory.pattern(start + length, seed)[start:])

    def note(self, mr, offset, length, seed, start=0):
        self._get(mr).region.note(offset, memory.pattern(start + length, seed)[start:])

    def note_bytes(self, mr, offset, text):
        self._get(mr).region.note(offset, bytes.fromhex(text))

    def store(self, mr, offset, text):
        self._get(mr).region.store(offset, bytes.fromhex(text))

    def load(self, mr, offset, length):
        return self._get(mr).region.load(offset, length).hex()

    def verify(self, mr):
        """What differs from what ought to be there, '' if nothing does."""
        return self._get(mr).region.verify()

    # Work.

    def post_recv(self, qp, wr_id=0, sges=()):
        sg = [SGE(*s) for s in sges]
        self._get(qp).post_recv(RecvWR(wr_id=wr_id, num_sge=len(sg), sg=sg))

    def post_recvs(self, qp, count, sges=(), wr_id=0):
        for i in range(count):
            self.post_recv(qp, wr_id + i, sges)

    def post_send(self, qp, op, wr_id=0, sges=(), flags='signaled', imm=0, inv=0, addr=0, rkey=0,
                  compare_add=0, swap=0, ah=None, qpn=0, qkey=0, bind=None):
        sg = [SGE(*s) for s in sges]
        if not sg:
            sg = [SGE(0, 0, 0)]  # pyverbs wants one
        f = sum(FLAGS[n] for n in flags.split())
        # The immediate and the key to invalidate share their place.
        wr = SendWR(wr_id=wr_id, opcode=OPS[op], num_sge=0 if op in ('local_inv', 'bind') else len(sg), sg=sg,
                    send_flags=f, imm_data=inv if op in ('send_inv', 'local_inv') else imm)
        if op in ('write', 'write_imm', 'read'):
            wr.set_wr_rdma(rkey, addr)
        elif op in ('cas', 'faa'):
            wr.set_wr_atomic(rkey, addr, compare_add, swap)
        elif op == 'bind':
            wr.set_bind_wr(self._get(bind['mw']), self._bind_info(bind))
        if ah is not None:
            wr.set_wr_ud(self._get(ah), qpn, qkey)
        self._get(qp).post_send(wr)
        return wr.rkey if op == 'bind' else 0

    def post_sends(self, qp, op, count, wr_id=0, **kwargs):
        for i in range(count):
            self.post_send(qp, op, wr_id + i, **kwargs)

    def _bind_info(self, bind):
        return MWBindInfo(self._get(bind['mr']).mr, bind['addr'], bind['length'], access(bind['rights']))

    def bind_mw(self, qp, bind, wr_id=0):
        """Binds a window of type 1 and returns its new key."""
        self._get(qp).bind_mw(self._get(bind['mw']), MWBind(self._bind_info(bind), FLAGS['signaled'], wr_id))
        return self._get(bind['mw']).rkey

    def poll(self, cq, count=1, wait=30.0):
        """Up to count completions; fewer only when wait seconds have gone."""
        c, got, end = self._get(cq), [], time.monotonic() + wait
        while len(got) < count:
            _, wcs = c.poll(count - len(got))
            got += [self._wc(w) for w in wcs]
            if len(got) < count and not wcs:
                if time.monotonic() > end:
                    break
                time.sleep(0.0005)
        return got

    @staticmethod
    def _wc(w):
        return {'id': w.wr_id, 'status': STATUS.get(w.status, str(w.status)), 'op': OPCODES.get(w.opcode, str(w.opcode)),
                'len': w.byte_len, 'imm': w.imm_data, 'with_imm': bool(w.wc_flags & WC_FLAGS['with_imm']),
                'with_inv': bool(w.wc_flags & WC_FLAGS['with_inv']), 'grh': bool(w.wc_flags & WC_FLAGS['grh']),
                'qpn': w.qp_num, 'src_qp': w.src_qp}

    def arm(self, cq, solicited=False):
        self._get(cq).req_notify(solicited)

    def event(self, cq, wait=30.0):
        """Whether a completion event came within wait seconds."""
        channel, fd = self.channels[cq]
        if not select.select([fd], [], [], wait)[0]:
            return False
        channel.get_cq_event(self._get(cq))
        self._get(cq).ack_events(1)
        return True

    def ah_from_datagram(self, pd, wc, mr):
        """The AH that answers a received datagram, whose 40 bytes start mr."""
        w = WC(wc_flags=WC_FLAGS['grh'], src_qp=wc['src_qp'], qp_num=wc['qpn'])
        return self._add('ah', AH(self._get(pd), wc=w, grh=self._get(mr).region.address, port_num=1))

    # Loops that are too fast for a call each.

    def hammer(self, qp, cq, op, mr, addr, rkey, count, expect=0):
        """count atomics one after the other. faa adds 1 and returns what was
        there before; cas counts up, trying again after each that missed, and
        returns the tries."""
        m = self._get(mr)
        old, out, tries, value = m.region, [], 0, expect
        while len(out) < count:
            tries += 1
            if op == 'faa':
                self.post_send(qp, 'faa', sges=[(m.region.address, 8, m.mr.lkey)], addr=addr, rkey=rkey, compare_add=1)
            else:
                self.post_send(qp, 'cas', sges=[(m.region.address, 8, m.mr.lkey)], addr=addr, rkey=rkey,
                               compare_add=value, swap=value + 1)
            w, = self.poll(cq)
            if w['status'] != 'success':
                raise RuntimeError(f'atomic {tries}: {w}')
            got = int.from_bytes(old.load(0, 8), 'little')
            if op == 'faa' or got == value:
                out.append(got)
            value = got + 1 if op == 'cas' and got == value else got
        return out if op == 'faa' else tries

    def hammer_cpu(self, mr, offset, count, pause=0.0):
        """count atomic additions of 1 by this guest's own processor."""
        add = memory.fetch_add()
        addr = self._get(mr).region.address + offset
        out = []
        for _ in range(count):
            out.append(add(addr, 1))
            if pause:
                time.sleep(pause)
        return out


class RegionMR:
    """A memory region with the memory it covers."""

    def __init__(self, mr, region):
        self.mr, self.region = mr, region

    def close(self):
        self.mr.close()
