"""sd-scripts' own functions, run on a CPU without torch: its parsers and checks of arguments."""
