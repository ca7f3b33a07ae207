"""What each pattern makes of a script's lines, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from unhang.fixing.patterns.exchanging import exchanged
from unhang.fixing.patterns.hoisting import hoisted
from unhang.fixing.patterns.reordering import reordered
from unhang.fixing.patterns.script import Patch, Script
from unhang.fixing.patterns.unevenness import joined

HEAD = "import torch.distributed as dist\n"


def script(body: str) -> Script:
    """A script that imports torch.distributed; its body begins at line 2."""
    return Script("train.py", HEAD + body)


def only(found: Iterator[Patch | str]) -> str:
    """The text of the one change that a pattern makes, without its head; or why it makes none."""
    (one,) = found
    return one if isinstance(one, str) else one.text.removeprefix(HEAD)


@pytest.mark.parametrize(
    ("before", "line", "after"),
    [
        ("if rank == 0:\n    dist.barrier()\n", 3, "dist.barrier()\n"),
        ("if rank == 0: dist.barrier()\nend()\n", 2, "dist.barrier()\nend()\n"),
        (
            "if is_main and step % 2:\n    dist.barrier()  # all\n",
            3,
            "if step % 2:\n    dist.barrier()  # all\n",
        ),
        (
            "if dist.get_rank() == 0:\n    save()\n    dist.barrier()\n",
            4,
            "if dist.get_rank() == 0:\n    save()\ndist.barrier()\n",
        ),
        (
            "if odd and acc.is_main_process:\n    a = acc.gather_for_metrics(b.argmax(-1))\n",
            3,
            "if odd:\n    a = acc.gather_for_metrics(b.argmax(-1))\n",
        ),
        (
            "if rank == 0:\n    full = w.full_tensor()\n    save(full)\n",
            3,
            "full = w.full_tensor()\nif rank == 0:\n    save(full)\n",
        ),
        (
            "if rank == 0:\n    a()\n    dist.barrier()\n    b()\n",
            4,
            "if rank == 0:\n    a()\ndist.barrier()\nif rank == 0:\n    b()\n",
        ),
        (
            "if rank == 0:\n    a()\n    dist.barrier()\nelse:\n    b()\n",
            4,
            "if rank == 0:\n    a()\nelse:\n    b()\ndist.barrier()\n",
        ),
        (
            "if rank in ranks:\n    group = dist.new_group(\n        ranks,\n    )\n",
            3,
            "group = dist.new_group(\n    ranks,\n)\n",
        ),
    ],
)
def test_a_call_moves_out_of_the_condition_of_a_rank(before: str, line: int, after: str) -> None:
    """Before, behind or between what stays in it; other conditions stay."""
    assert only(hoisted(script(before), line)) == after


@pytest.mark.parametrize(
    ("body", "line", "why"),
    [
        ("if rank:\n    a()\nelse:\n    dist.barrier()\n", 5, "under an `else`"),
        ("if rank == 0:\n    dist.send(q.pop(), 1)\n", 3, "calls pop"),
        ("if rank == 0 or late:\n    dist.barrier()\n", 3, "with `or`"),
    ],
)
def test_what_is_not_mechanical_is_refused_with_its_reason(body: str, line: int, why: str) -> None:
    """A call with side effects must not run on every rank."""
    assert why in only(hoisted(script(body), line))


@pytest.mark.parametrize(
    "body",
    [
        "if rank == 0:\n    torch.save(model.state_dict(), path)\n",
        "if loss > 3:\n    dist.barrier()\n",
        "if rank == 0:\n    save(model)\n",
        "dist.barrier()\ndist.barrier()\n",
        "if rank == 0:\n    def save():\n        dist.barrier()\n",
    ],
)
def test_other_statements_are_left_alone(body: str) -> None:
    """What writes a file, stands under data, or stands in a function that a rank calls."""
    lines = range(2, 2 + body.count("\n"))
    assert not [found for line in lines for found in hoisted(script(body), line)]


def test_two_branches_get_one_order() -> None:
    """That of the first."""
    one, two = "dist.barrier(a)", "dist.all_reduce(x, group=b)"
    body = f"if rank:\n    {one}\n    {two}\nelse:\n    {two}\n    {one}\n"
    assert only(reordered(script(body), [3, 6])) == (
        f"if rank:\n    {one}\n    {two}\nelse:\n    {one}\n    {two}\n"
    )
    assert not list(reordered(script(body.replace("group=b", "group=c", 1)), [3, 6]))
    assert not list(reordered(script(body), [3]))


def test_a_receive_before_its_send_becomes_a_batch() -> None:
    """With the group, the tag and the peer of each."""
    body = (
        "def f():\n    dist.recv(b, left, group=g)\n    dist.send(x, dst=right, tag=1)\n    end()\n"
    )
    assert only(exchanged(script(body), [3])) == (
        "def f():\n    for work in dist.batch_isend_irecv([\n"
        "        dist.P2POp(dist.isend, x, right, tag=1),\n"
        "        dist.P2POp(dist.irecv, b, left, group=g),\n"
        "    ]):\n        work.wait()\n    end()\n"
    )


def test_a_chain_is_no_exchange() -> None:
    """What is sent comes of what was received."""
    body = "dist.recv(x, left)\ndist.send(x + 1, right)\n"
    assert only(exchanged(script(body), [2])) == "what line 3 sends or receives comes of line 2"
    assert not list(exchanged(script("dist.recv(x, left)\ny = x + 1\ndist.send(y, 1)\n"), [2]))


WRAPS = "from torch.nn.parallel import DistributedDataParallel as DDP\nmodel = DDP(net)\n"


def test_a_loop_of_uneven_batches_is_joined() -> None:
    """The innermost one that runs a backward pass of a model."""
    loop = "for x in loader:\n    model(x).sum().backward()\n\n    step()\n"
    assert only(joined(script(WRAPS + loop), 5, [9])) == (
        f"{WRAPS}with model.join():\n    for x in loader:\n"
        "        model(x).sum().backward()\n\n        step()\n"
    )
    assert not list(joined(script(loop), 3, []))  # no model of DDP in it
    assert not list(joined(script(WRAPS + loop.replace(".backward()", "")), 5, []))
    assert not list(joined(script(WRAPS + loop), 5, [7]))  # the other ranks are in it too
