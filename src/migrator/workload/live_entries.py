"""The keys of a scenario file that only the live runtime reads; the simulator passes them over.

Like entries.py, descriptions serve in the JSON schema and where a value is refused.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from migrator.core.scenario import HIGHEST_SEED
from migrator.io.strict import Entry

MAX_CLASSES = 100_000
MAX_PIXELS = 1024
MAX_BODY_MIB = 1024
MAX_QUEUE = 1_000_000
MAX_CONNECTIONS = 65_535
MAX_EPOCHS = 10_000
MAX_REPLAY = 1_000_000


class LiveTenantEntry(Entry):
    """How one tenant's model is built, served and retrained live."""

    classes: int | None = Field(
        default=None,
        ge=2,
        le=MAX_CLASSES,
        description=f"the classes its model tells apart, an integer from 2 to {MAX_CLASSES}; "
        "those of the benchmark unless given",
        examples=[10],
    )
    pixels: int | None = Field(
        default=None,
        ge=1,
        le=MAX_PIXELS,
        description=f"the side of the images its network sees, an integer up to {MAX_PIXELS}; "
        "the model's own unless given",
        examples=[16],
    )
    weights: str | None = Field(
        default=None,
        description="the path of a safetensors file to begin with, relative to the scenario",
        examples=["weights/resnet-50.safetensors"],
    )
    benchmark: str | None = Field(
        default=None,
        description="the name of a benchmark, as text: pre-training and `migrator load` take "
        "labelled samples from it; the retraining's data set unless given",
        examples=["nc-synthetic", "nc-cifar-10"],
    )
    seed: int | None = Field(
        default=None,
        ge=0,
        le=HIGHEST_SEED,
        description="what first weights and made-up samples follow, an integer of at least 0; "
        "the scenario's plus the tenant's position unless given",
        examples=[1],
    )
    epochs: int = Field(
        default=8,
        ge=1,
        le=MAX_EPOCHS,
        description=f"the epochs of a retraining, an integer from 1 to {MAX_EPOCHS}",
        examples=[4],
    )
    replay: int = Field(
        default=200,
        ge=0,
        le=MAX_REPLAY,
        description="the samples of every earlier class that are learned again, an integer from "
        f"0 to {MAX_REPLAY}",
        examples=[50],
    )
    held_out: float = Field(
        default=0.2,
        ge=0.01,
        le=0.9,
        allow_inf_nan=False,
        description="the part of the labelled requests that only judges retrainings, a number "
        "from 0.01 to 0.9",
        examples=[0.2],
    )


class LiveEntry(Entry):
    """Where the live runtime listens, to whom, and how much it takes."""

    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="the address to listen on, as text",
        examples=["127.0.0.1", "0.0.0.0"],
    )
    port: int = Field(
        default=8600,
        ge=0,
        le=65535,
        description="the port to listen on, an integer from 0 (any that is free) to 65535",
        examples=[8600],
    )
    tokens: str | None = Field(
        default=None,
        description="the path of a YAML or JSON file with a token per tenant and one for admin, "
        "relative to the scenario",
        examples=["tokens.yaml"],
    )
    token_variables: Annotated[dict[str, str], Field(min_length=1)] | None = Field(
        default=None,
        description="the environment variables that hold the tokens, by tenant and for admin, "
        'such as {"admin": "ADMIN_TOKEN"}',
        examples=[{"admin": "ADMIN_TOKEN", "photos": "PHOTOS_TOKEN"}],
    )
    max_body_mib: float = Field(
        default=16.0,
        gt=0,
        le=MAX_BODY_MIB,
        allow_inf_nan=False,
        description=f"the largest request in MiB, a number above 0 and up to {MAX_BODY_MIB}",
        examples=[16],
    )
    queue_limit: int = Field(
        default=512,
        ge=1,
        le=MAX_QUEUE,
        description="the requests of a tenant that may wait, an integer from 1 to "
        f"{MAX_QUEUE}; those beyond are refused at once",
        examples=[512],
    )
    connections: int = Field(
        default=1024,
        ge=1,
        le=MAX_CONNECTIONS,
        description="the connections that are served at a time, an integer from 1 to "
        f"{MAX_CONNECTIONS}",
        examples=[1024],
    )
