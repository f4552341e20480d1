# SPDX-License-Identifier: Apache-2.0
"""Types for argparse that say which values they take."""
import argparse


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"is {value}, must be at least 1")
    return value


def density(text):
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"is {value}, must be in (0, 1]")
    return value
