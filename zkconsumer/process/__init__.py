"""This process: its clock, threads, forks, CPUs and the files of killed ones."""
