"""The keys of a scenario file that only a cluster has: its GPUs, and who may share one."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from migrator.io.strict import Entry

MOST_GPUS = 10_000
MOST_TENANTS = 20_000

_Names = Annotated[list[str], Field(min_length=1)]


class GpuEntry(Entry):
    """One or several GPUs of one board."""

    board: str = Field(
        default="H200-141GB",
        description='the name of a board, such as "H200-141GB"',
        examples=["H200-141GB", "A100-40GB"],
    )
    name: str | None = Field(
        default=None,
        description="what the GPU is called, as text; several are numbered: NAME-1, NAME-2; the "
        "board's name unless given",
        examples=["rack-a"],
    )
    count: int = Field(
        default=1,
        ge=1,
        le=MOST_GPUS,
        description=f"how many of them there are, an integer from 1 to {MOST_GPUS}",
        examples=[8],
    )
    node: str | None = Field(
        default=None,
        description="the machine they are in, as text; null: not said",
        examples=["node-1"],
    )


class ClusterEntry(Entry):
    """The GPUs that tenants are placed on, and what a placement has to keep."""

    gpus: Annotated[list[GpuEntry], Field(min_length=1)] = Field(
        description="a list of at least one {board, name, count, node}"
    )
    apart: list[_Names] = Field(
        default=[],
        description="lists of tenants of which no two share a GPU; the name of an entry with "
        "count stands for all of its tenants",
        examples=[[["front-page", "its-replica"]]],
    )
    together: list[_Names] = Field(
        default=[],
        description="lists of tenants that all share a GPU",
        examples=[[["detector", "reader"]]],
    )
    spare: float = Field(
        default=0.0,
        ge=0,
        le=0.9,
        allow_inf_nan=False,
        description="the part of every instance's capability that placing tenants does not count "
        "on, kept for bursts, a number from 0 to 0.9",
        examples=[0.1],
    )
    move_s: float = Field(
        default=20.0,
        ge=0,
        le=1e6,
        allow_inf_nan=False,
        description="what moving a tenant costs, in seconds of its goodput, a number of at least 0",
        examples=[20],
    )
