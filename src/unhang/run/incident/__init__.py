"""One incident: its evidence is taken, the case is judged, people are notified."""
