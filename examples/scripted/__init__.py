"""What the scripted judge says of a case: it reads the answer by a marking guide written beforehand."""
