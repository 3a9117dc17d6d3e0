"""What is wrong with files of axolotl."""
