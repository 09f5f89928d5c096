# SPDX-License-Identifier: Apache-2.0
"""A reliable connection whose link is cut while work waits.

    outlast.py PORT GID_INDEX          the side that is written to
    outlast.py PORT GID_INDEX HOST     the side that writes

The writing side says "connected" after a first WRITE, waits for a line, posts
WRITEs and a receive, and prints what became of them as JSON."""

import ctypes
import json
import mmap
import socket
import sys
import time

from pyverbs import libibverbs_enums as e
from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import RecvWR, SGE, SendWR

SIZE, WRITES = 4096, 6
STATUS = {int(v): n.removeprefix('IBV_WC_') for n, v in e.ibv_wc_status.__members__.items()}
STATE = {int(v): n.removeprefix('IBV_QPS_') for n, v in e.ibv_qp_state.__members__.items()}
ACCESS = e.ibv_access_flags.IBV_ACCESS_LOCAL_WRITE | e.ibv_access_flags.IBV_ACCESS_REMOTE_WRITE


class End:
    def __init__(self, gid_index):
        self.gid_index = gid_index
        self.ctx = Context(name='ionic_0')
        self.pd = PD(self.ctx)
        self.cq = CQ(self.ctx, 64)
        self.map = mmap.mmap(-1, SIZE)
        self.addr = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.mr = MR(self.pd, SIZE, ACCESS, address=self.addr)
        self.qp = QP(self.pd, QPInitAttr(qp_type=e.ibv_qp_type.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=QPCap(16, 16, 1, 1, 0)))

    def about(self):
        return {'qpn': self.qp.qp_num, 'gid': self.ctx.query_gid(1, self.gid_index).gid, 'addr': self.addr, 'rkey': self.mr.rkey}

    def connect(self, peer):
        a = QPAttr(port_num=1)
        a.qp_access_flags = ACCESS
        self.qp.to_init(a)
        a = QPAttr(port_num=1)
        a.dest_qp_num, a.rq_psn, a.path_mtu = peer['qpn'], 0, e.ibv_mtu.IBV_MTU_1024
        a.max_dest_rd_atomic, a.min_rnr_timer = 1, 12
        a.ah_attr = AHAttr(gr=GlobalRoute(dgid=GID(peer['gid']), sgid_index=self.gid_index, hop_limit=64), is_global=1, port_num=1)
        self.qp.to_rtr(a)
        a = QPAttr()
        a.sq_psn, a.timeout, a.retry_cnt, a.rnr_retry, a.max_rd_atomic = 0, 14, 7, 7, 1
        self.qp.to_rts(a)

    def write(self, wr_id, peer):
        wr = SendWR(wr_id=wr_id, opcode=e.ibv_wr_opcode.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(self.addr, SIZE, self.mr.lkey)],
                    send_flags=e.ibv_send_flags.IBV_SEND_SIGNALED)
        wr.set_wr_rdma(peer['rkey'], peer['addr'])
        self.qp.post_send(wr)

    def poll(self, count):
        """count completions, less if they do not come within a minute."""
        got, end = [], time.monotonic() + 60
        while len(got) < count and time.monotonic() < end:
            n, wcs = self.cq.poll(count - len(got))
            got += [[w.wr_id, STATUS.get(w.status, str(w.status))] for w in wcs]
            if not n:
                time.sleep(0.001)
        return got


def main():
    port, end = int(sys.argv[1]), End(int(sys.argv[2]))
    if len(sys.argv) == 3:
        with socket.create_server(('', port)) as listener:
            conn, _ = listener.accept()
    else:
        conn = socket.create_connection((sys.argv[3], port))
    lines = conn.makefile('rw')
    print(json.dumps(end.about()), file=lines, flush=True)
    peer = json.loads(lines.readline())
    end.connect(peer)
    print('ready', file=lines, flush=True)
    lines.readline()
    if len(sys.argv) == 3:
        lines.readline()  # until the other side is done
        return
    end.write(1, peer)
    print('connected' if end.poll(1) == [[1, 'SUCCESS']] else 'the first WRITE failed', flush=True)
    sys.stdin.readline()
    begun = time.monotonic()
    end.qp.post_recv(RecvWR(wr_id=1000, num_sge=1, sg=[SGE(end.addr, SIZE, end.mr.lkey)]))
    for i in range(WRITES):
        end.write(100 + i, peer)
    completions = end.poll(WRITES + 1)
    attr, _ = end.qp.query(e.ibv_qp_attr_mask.IBV_QP_STATE)
    print(json.dumps({'completions': completions, 'seconds': time.monotonic() - begun, 'state': STATE[int(attr.qp_state)]}), flush=True)


main()
