"""Programs that print figures. Ratios are measured in one run on one machine; no test asserts a wall-clock time."""
