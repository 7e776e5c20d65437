"""What ids mean: every id that an error can name is explained, and examples break what they are examples of."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import cupytma as tma
from cupytma import check, errors, sim, sticky
from cupytma.help import KINDS, Topic, find, how_tos, names, similar, topics
from cupytma.help.examples import EXAMPLES, Example
from cupytma.ptx import RECIPES
from cupytma.sim.program import RULES as PROGRAM_RULES
from cupytma.tensormap import FOLKLORE, RULES

FOLDER = Path(how_tos.__file__).parent


def test_every_row_of_every_table_is_a_topic() -> None:
    known = {(topic.kind, topic.id) for topic in topics()}
    kinds = {"error": "rule", "warning": "warning", "fault": "fault"}
    assert {(kinds[rule.severity], rule.id) for rule in RULES} <= known
    for kind, ids in (
        ("folklore", {entry.id for entry in FOLKLORE}), ("finding", set(check.RULES)), ("program", set(PROGRAM_RULES)),
        ("recipe", set(RECIPES)), ("cuda", {row.topic for row in sticky.STICKY_ERRORS.values()}),
    ):  # fmt: skip
        assert {id for found, id in known if found == kind} == ids
    assert len(known) == len(topics())


def test_every_how_to_file_is_listed_and_begins_with_its_title() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == set(how_tos.ORDER)
    for topic in how_tos.topics():
        assert topic.title
        assert not topic.title.startswith("#")
        assert not topic.text.startswith("#")


@pytest.mark.parametrize("topic", topics(), ids=lambda topic: f"{topic.kind}-{topic.id}")
def test_a_topic_has_a_title_and_a_text_of_its_own(topic: Topic) -> None:
    assert topic.kind in KINDS
    assert topic.title == topic.title.strip()
    assert not topic.title.endswith(".")
    assert len(topic.text) > 40
    assert topic in find(topic.id)
    assert topic in find(topic.id.upper())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_example_of_a_rule_breaks_it_and_nothing_else(rule: object) -> None:
    example: Example = EXAMPLES[rule.id]  # type: ignore[attr-defined]
    assert {violation.rule for violation in example.broken()} == {rule.id}  # type: ignore[attr-defined]
    assert {violation.severity for violation in example.broken()} == {rule.severity}  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_code_of_an_example_makes_it(name: str) -> None:
    example, scope = EXAMPLES[name], {"tma": tma}
    made, _, asked = example.code.rpartition("\n")
    exec(made, scope)
    assert scope["parameters"] == example.parameters
    assert {violation.rule for violation in eval(asked, scope)} == {name}
    assert max(map(len, example.code.splitlines())) <= 80


def test_ids_in_how_tos_that_look_like_ids_exist() -> None:
    """Backticked words with hyphens are ids, but for names of files, packages and what stands here."""
    launch_checks = {"shared-size", "map-memory", "map-of-zeros", "map-illegal", "slot-start", "multicast-cluster"}
    others = {"compute-sanitizer", "cuda-gdb"}
    for topic in how_tos.topics():
        for word in re.findall(r"`([a-z0-9]+(?:-[a-z0-9]+)+)`", topic.text):
            assert word in names() or word in launch_checks | others, f"{topic.id}: {word}"


def test_rules_refer_back_to_the_how_tos_that_speak_of_them() -> None:
    (rule,) = find("start-inner-multiple")
    assert "`illegal-instruction`" in rule.text
    assert "`start-inner-multiple`" in find("illegal-instruction")[0].text


@pytest.mark.parametrize("name", ["715", "CUDA_ERROR_ILLEGAL_INSTRUCTION", "cudaErrorIllegalInstruction"])
def test_errors_of_cuda_are_found_by_number_and_name_with_their_how_to(name: str) -> None:
    assert [(topic.kind, topic.id) for topic in find(name)] == [
        ("how-to", "illegal-instruction"), ("cuda", "illegal-instruction"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["shared-size", "map-memory", "map-of-zeros", "map-illegal", "reduction", "slot-start", "multicast-cluster"]
)
def test_rules_of_launches_lead_to_a_how_to(name: str) -> None:
    assert {topic.kind for topic in find(name)} == {"how-to"}


@pytest.mark.parametrize("name", ["", " ", "nothing-of-the-kind", "`", "../../etc/passwd", "x" * 10_000])
def test_what_is_no_id_finds_nothing(name: str) -> None:
    assert find(name) == ()
    assert len(similar(name)) <= 3


def test_near_ids_are_offered() -> None:
    assert similar("encode-fail")[0] == "encode-fails"
    assert "box-range" in similar("box-rang")


def _error_classes() -> list[type[errors.CupytmaError]]:
    found = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.CupytmaError)]
    return found + [kind for kind in vars(sim).values() if isinstance(kind, type) and issubclass(kind, errors.Fault)]


@pytest.mark.parametrize("kind", _error_classes(), ids=lambda kind: kind.__name__)
def test_what_a_class_of_errors_refers_to_exists(kind: type[errors.CupytmaError]) -> None:
    for name in kind.topics:
        assert find(name), name


def test_a_descriptor_error_ends_with_where_its_rules_are_explained() -> None:
    with pytest.raises(errors.DescriptorError) as raised:
        EXAMPLES["box-range"].parameters.encode()
    assert str(raised.value).splitlines()[-1] == "More: cupytma help box-range"
    again = pickle.loads(pickle.dumps(raised.value))
    assert str(again) == str(raised.value)
    assert again.topics == raised.value.topics == ("box-range",)


def test_an_error_in_the_words_of_an_array_says_once_where_its_rule_is_explained() -> None:
    with pytest.raises(errors.DescriptorError) as raised:
        tma.tensor_map(np.zeros((64, 64), np.float16), box=(512, 64))
    assert re.findall("More: .*", str(raised.value)) == ["More: cupytma help box-range"]
    assert "box[0] = 512" in str(raised.value)


@pytest.mark.parametrize("topic", topics(), ids=lambda topic: f"{topic.kind}-{topic.id}")
def test_python_in_a_topic_fits_a_terminal_of_80_columns_with_its_margins(topic: Topic) -> None:
    for code in re.findall(r"^```python\n(.*?)^```", topic.text, re.MULTILINE | re.DOTALL):
        assert max(map(len, code.splitlines())) <= 78


def test_many_broken_rules_stay_on_one_line_of_80_columns() -> None:
    line = errors.more_line([rule.id for rule in RULES] * 2)
    assert line.startswith("More: cupytma help data-type rank ")
    assert len(line) <= 80


def test_errors_without_rules_say_nothing_more() -> None:
    assert str(errors.DescriptorError("no bytes")) == "no bytes"
    assert errors.DescriptorError("no bytes").topics == ("encode-fails",)


def test_faults_of_the_driver_know_their_how_to() -> None:
    assert errors.DriverError("died", 716).topics == ("misaligned-address", "every-call-fails")
    assert errors.DriverError("refused", 1).topics == ()


def test_the_report_of_a_fault_says_where_to_read_on() -> None:
    assert str(tma.explain_fault(715, launches=[])).splitlines()[-1] == "More: cupytma help illegal-instruction"


def test_faults_of_the_simulator_name_the_rule() -> None:
    halves = tma.Tiled(data_type="FLOAT16", global_address=0, global_dim=(256, 64), box_dim=(64, 64)).encode()
    (found,) = sim.grid_faults(halves, lambda x, y, z: (65 * x, 0), 2)
    assert found.fault.topics == ("start-inner-multiple", "illegal-instruction")
