"""Defines what a study is: its question, rows, parameters, summary, tables, figures and job."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeVar, get_type_hints

from acpc.contract import Frozen, Record, check
from acpc_client import Result
from acpc_client.errors import ArgumentError, MalformedAnswer

from acpc_lab.studies.figures import Listing, by_row
from acpc_lab.studies.measuring import Ask, StudyCheckpoint
from acpc_lab.tables import Arrays, Numbers, Rows, Texts, column

if TYPE_CHECKING:
    from matplotlib.figure import Figure

READINGS = ("paper", "released")
Figures = dict[str, "Figure"]


class RunRows(Rows):
    """Rows that are of a task and a training run."""

    task: Texts = column("task")
    run: Texts = column("training run, for example its seed")


class LevelRows(RunRows):
    """Rows that are of one checkpoint among those of a training run."""

    level: Numbers = column("augmentation level; 0: the unaugmented reference", low=0)


def by_reading(*, paper: object, released: object) -> Any:  # noqa: ANN401 - as dataclasses.field
    """Declares a parameter that is one of two values, by ``reading`` where it is None.

    Where one of them is a number, ``check_rules`` says what else may be given.
    """
    return field(default=None, metadata={"readings": {"paper": paper, "released": released}})


class Parameters(Frozen):
    """Base of the parameters of a study; each default is the paper's.

    Raises ArgumentError: A value is of another type, out of range, or none of the choices.
    """

    def __post_init__(self) -> None:
        check(self)
        reading = getattr(self, "reading", "paper")
        for item in dataclasses.fields(self):
            name, found = item.name, getattr(self, item.name)
            readings = item.metadata.get("readings", {})
            if readings and found is None:
                object.__setattr__(self, name, readings[reading])
                continue
            choices = READINGS if name == "reading" else tuple(readings.values())
            if choices and set(map(type, choices)) == {str} and found not in choices:
                raise ArgumentError(name, f"found {found!r}, wanted one of {', '.join(choices)}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Reads ``to_dict`` after a journey through JSON.

        Raises ArgumentError: A parameter is unknown or out of range.
        """
        names = [item.name for item in dataclasses.fields(cls)]
        for name in values:
            if name not in names:
                raise ArgumentError(name, f"is no parameter; there are {', '.join(names)}")
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


Answers = Sequence[tuple[StudyCheckpoint, Any]]
"""The checkpoints that were measured, each with the answer of its job."""
Kind = TypeVar("Kind", bound=Rows)


def gathered(kind: type[Kind], answers: Answers) -> tuple[Kind, Arrays]:
    """The rows of every checkpoint, with its task, run and level, and the arrays beside them.

    An array of the i-th checkpoint is called ``{i}.name``. Raises MalformedAnswer: An answer lacks
    a column, or holds a value it must not.
    """
    names, parts = ("task", "run", "level"), []
    arrays: dict[str, Any] = {}
    for index, (row, answer) in enumerate(answers):
        arrays |= {f"{index}.{name}": values for name, values in answer.arrays.items()}
        named = {name: [getattr(row, name)] * answer.rows for name in names}
        held, known = {**named, **answer.columns}, {item.name: item for item in kind.fields()}
        for name, item in known.items():
            if name not in held and not item.optional:
                found = ", ".join(answer.columns)
                wrong = f"{row.checkpoint.name}: column {name} is missing; found {found}"
                raise MalformedAnswer(wrong)
        try:
            parts.append(kind.of({name: held[name] for name in known if name in held}))
        except ArgumentError as error:
            raise MalformedAnswer(f"{row.checkpoint.name}: {error.message}") from error
    return kind.joined(parts), arrays


@dataclass(frozen=True)
class Study:
    """One of the paper's studies.

    Attributes:
        summarise: Rows, parameters and arrays to the summary; its hints name the types of the first
            two.
        shown: Lines and tables of a summary, for the terminal and as figures.
        paper: What the paper found, to stand below what is found here.
        about, examples: What the command says below the question.
        ask: What is measured on each checkpoint unless options say otherwise; None: the rows come
            from a file.
        gather: Answers and parameters to rows and arrays, with what to call with a note for the
            user; None: the rows as the server answers them.
        check: Rejects checkpoints that the study cannot take, given its parameters.
        draw: Figures by name beside those of the tables; needs the lab's extras.
    """

    name: str
    question: str
    summarise: Callable[[Any, Any, Arrays], Record]
    shown: Callable[[Any], Iterator[str | Listing]]
    paper: str
    examples: Sequence[str] = ()
    ask: Ask | None = None
    about: str = ""
    gather: Callable[[Answers, Any, Callable[[str], None]], tuple[Rows, Arrays]] | None = None
    check: Callable[[Sequence[StudyCheckpoint], Any], None] = lambda checkpoints, parameters: None
    draw: Callable[[Evidence], Figures] = lambda made: {}

    @property
    def rows(self) -> type[Rows]:
        """The type of the rows."""
        kind: type[Rows] = get_type_hints(self.summarise)["rows"]
        return kind

    @property
    def parameters(self) -> type[Parameters]:
        """The type of the parameters."""
        kind: type[Parameters] = get_type_hints(self.summarise)["parameters"]
        return kind


@dataclass(frozen=True)
class Evidence:
    """A study that has been made: its rows, often with arrays beside them, and what follows."""

    study: Study
    rows: Any
    parameters: Any
    arrays: Arrays
    summary: Any

    @classmethod
    def of(
        cls,
        study: Study,
        rows: Rows,
        parameters: Parameters | None = None,
        arrays: Arrays | None = None,
    ) -> Evidence:
        """Computes the summary; no parameters mean the paper's.

        Raises ArgumentError: The rows cannot answer the question.
        """
        chosen, held = parameters or study.parameters(), arrays or {}
        return cls(study, rows, chosen, held, study.summarise(rows, chosen, held))

    def result(self, sources: Sequence[Mapping[str, Any]] = ()) -> Result:
        """The summary with what it was computed from, as ``acpc_client.save_result`` takes it."""
        parameters = self.parameters.to_dict()
        asked = {"study": self.study.name, "parameters": parameters, "sources": list(sources)}
        return Result("study_summary", self.summary.to_dict(), asked)

    def figures(self) -> Figures:
        """The figures by name; open a ``styled`` context to draw and to save them.

        Raises FailedPrecondition: matplotlib or scikit-learn is not installed.
        """
        parts = self.study.shown(self.summary)
        drawn = {x.figure: by_row(x) for x in parts if isinstance(x, Listing) and x.figure}
        return drawn | self.study.draw(self)
