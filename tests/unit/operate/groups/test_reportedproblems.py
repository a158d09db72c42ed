"""What is reported of samples that are incomplete."""

from zkconsumer.operate.groups.reportedproblems import ReportedProblems


def test_a_problem_is_reported_once_until_a_sample_is_complete():
    """Two brokers that have ended are noticed in turns."""
    reported = ReportedProblems()
    reports = [reported.after(problems) for problems in (["a"], ["b", "a"], ["a"], [], [], ["a", "a"])]
    assert [report.new for report in reports] == [("a",), ("b",), (), (), (), ("a",)]
    assert [report.ended for report in reports] == [False, False, False, True, False, False]
