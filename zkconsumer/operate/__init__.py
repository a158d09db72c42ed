"""Operator tools: functions that return values; they never print."""
