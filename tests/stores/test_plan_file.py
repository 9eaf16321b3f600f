"""The plan of a session as a file."""

from pathlib import Path

from palimpsest.stores.scratch import PlanFile


def test_a_plan_is_read_as_it_was_changed_and_not_through_a_link(tmp_path: Path) -> None:
    plan = PlanFile(tmp_path / "session")
    path = Path(plan.keep("1. Read"))
    assert plan.read() == "1. Read"
    path.unlink()
    assert plan.read() is None
    (tmp_path / "elsewhere").write_text("a secret of another folder")
    path.symlink_to(tmp_path / "elsewhere")
    assert plan.read() is None
