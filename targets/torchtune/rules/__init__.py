"""Rules about the recipes of torchtune."""
