# SPDX-License-Identifier: Apache-2.0
"""Atomics: the right arithmetic, and one at a time against everybody."""

from checks import check, every
from pair import pair, same, want

ALL = (1 << 64) - 1


@check('rc compare and swap')
def cas(a, b):
    x, y = pair(a, b)
    old, word = x.mr(8), y.mr(24)
    word.store64(8, 0x1122334455667788)
    for compare, swap, before in ((0x1122334455667788, ALL, 0x1122334455667788),  # hits
                                  (5, 7, ALL),  # misses and must not write
                                  (ALL, 0, ALL), (0, 1 << 63, 0), (1 << 63, 42, 1 << 63)):
        x.send('cas', sges=[old.sge()], addr=word.addr + 8, rkey=word.rkey, compare_add=compare, swap=swap)
        x.sent(op='cas')
        old.note64(0, before)
        if before == compare:
            word.note64(8, swap)
        old.intact('original value')
        word.intact('word')


@check('rc fetch and add')
def faa(a, b):
    x, y = pair(a, b)
    old, word = x.mr(8), y.mr(24)
    word.store64(8, 5)
    value = 5
    for add in (1, 0, ALL, 1 << 63, 0x100000000, (1 << 63) + 9):
        x.send('faa', sges=[old.sge()], addr=word.addr + 8, rkey=word.rkey, compare_add=add)
        x.sent(op='faa')
        old.note64(0, value)
        value = (value + add) & ALL
        word.note64(8, value)
        old.intact('original value')
        word.intact('word')


@check('rc atomics of a batch run in order')
def batch(a, b):
    x, y = pair(a, b)
    old, word = x.mr(8 * 60), y.mr(8)
    word.store64(0, 0)
    for turn in range(10):
        for i in range(60):
            x.send('faa', wr_id=i, sges=[old.sge(8 * i, 8)], addr=word.addr, rkey=word.rkey, compare_add=1)
        same([w['id'] for w in x.ep.poll(x.scq, 60)], list(range(60)), 'completions')
        for i in range(60):
            old.note64(8 * i, turn * 60 + i)
        old.intact('originals')
    word.note64(0, 600)
    word.intact()


def contend(a, b, op, cpu, count=400):
    """The other guest, this guest through a QP to itself, and if asked for this
    guest's processor work on one word of this guest."""
    near, far = pair(a, a), pair(b, a)
    word = near[1].mr(8)
    # The same memory in the PD of the far pair's responder.
    far_key = a.mr(far[1].pd, 8, 'lwra', 0, word.mr)['rkey']
    word.store64(0, 0)
    mine, theirs = near[0].mr(8), far[0].mr(8)
    wait = None
    if hasattr(b, 'begin'):
        wait = b.begin('hammer', far[0].qp, far[0].scq, op, theirs.mr, word.addr, far_key, count)
    seen = [a.hammer(near[0].qp, near[0].scq, op, mine.mr, word.addr, near[1].ep._get(word.mr).mr.rkey, count)]
    if cpu:
        seen.append(a.hammer_cpu(word.mr, 0, 20000))
    seen.append(wait() if wait else b.hammer(far[0].qp, far[0].scq, op, theirs.mr, word.addr, far_key, count))
    return word, seen


@every('rc fetch and add, contended', ['by two guests', 'by two guests and a processor'], usual=['by two guests'])
def contended_faa(a, b, who):
    cpu = 'processor' in who
    word, seen = contend(a, b, 'faa', cpu)
    total = sum(len(s) for s in seen)
    same(word.load64(), total, 'the sum')
    every_one = sorted(v for s in seen for v in s)
    want(every_one == list(range(total)), 'an original value is missing or was given twice')
    return f'{total} additions'


@check('rc compare and swap, contended by two guests')
def contended_cas(a, b):
    word, seen = contend(a, b, 'cas', False, 200)
    same(word.load64(), 400, 'the count')
    return f'{sum(seen)} tries for 400'
