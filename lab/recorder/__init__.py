"""What torch's recorder would have dumped of a simulated job, down to the bytes."""
