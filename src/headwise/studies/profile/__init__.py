"""Where does each head attend? Statistics of every head over texts and over repeated random tokens."""
