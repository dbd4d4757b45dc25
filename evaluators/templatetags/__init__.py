"""What every page is drawn with: figures, marks and components."""
