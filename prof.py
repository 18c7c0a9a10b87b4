import cProfile,pstats
from benchmarks import batches as B
B.MEMBERS=["ridge","gp_matern","gp_rbf","extra_trees:fast"]; B.N_CHOICES=1
B.measure("BH",0.0,100,"blend, ignored")
p=cProfile.Profile(); p.enable(); B.measure("BH",0.0,100,"blend"); p.disable()
pstats.Stats(p).sort_stats("cumulative").print_stats(45)
