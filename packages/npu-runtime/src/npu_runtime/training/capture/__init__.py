"""Running a step over fixed memory: warm-up, recording, replay."""
