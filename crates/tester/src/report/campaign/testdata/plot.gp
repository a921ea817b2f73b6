# In this folder: gnuplot plot.gp
set terminal svg size 1000,600 noenhanced
set key outside below
set grid
set style fill solid 0.5
set xtics rotate by -45

set output "rates.svg"
set title "Sample <of> 100 % & more"
set xlabel "AAAA / cached, %"
set ylabel "queries/s"
set yrange [0:*]
width = 0.8 / 3
array names[3] = ["dns64d cores=1", "dns64d cores=1-2", "un_bound & <co>"]
plot for [i=0:2] "rates.dat" index i using ($1 + i * width):2:(width):xtic(5) with boxes title names[i + 1], \
     for [i=0:2] "rates.dat" index i using ($1 + i * width):2:3:4 with yerrorbars lc "black" pt 0 notitle

set output "distribution.svg"
set title "Distribution of the runs"
set xlabel "queries/s"
set ylabel "share of the runs up to a rate"
set xtics norotate autofreq
set yrange [0:1.02]
array runs[30] = ["dns64d cores=1, AAAA 0 %, cached 0 %", "dns64d cores=1, AAAA 50 %, cached 0 %", "dns64d cores=1, AAAA 100 %, cached 0 %", "dns64d cores=1, AAAA 0 %, cached 50 %", "dns64d cores=1, AAAA 50 %, cached 50 %", "dns64d cores=1, AAAA 100 %, cached 50 %", "dns64d cores=1, AAAA 0 %, cached 100 %", "dns64d cores=1, AAAA 0 %, cached 0 %, trials of 2 s, timeout 1 s", "dns64d cores=1, AAAA 0 %, cached 0 %, trials of 1 s, timeout 0.5 s", "dns64d cores=1, AAAA 0 %, cached 0 %, trials of 2 s, timeout 0.5 s", "dns64d cores=1-2, AAAA 0 %, cached 0 %", "dns64d cores=1-2, AAAA 50 %, cached 0 %", "dns64d cores=1-2, AAAA 100 %, cached 0 %", "dns64d cores=1-2, AAAA 0 %, cached 50 %", "dns64d cores=1-2, AAAA 50 %, cached 50 %", "dns64d cores=1-2, AAAA 100 %, cached 50 %", "dns64d cores=1-2, AAAA 0 %, cached 100 %", "dns64d cores=1-2, AAAA 0 %, cached 0 %, trials of 2 s, timeout 1 s", "dns64d cores=1-2, AAAA 0 %, cached 0 %, trials of 1 s, timeout 0.5 s", "dns64d cores=1-2, AAAA 0 %, cached 0 %, trials of 2 s, timeout 0.5 s", "un_bound & <co>, AAAA 0 %, cached 0 %", "un_bound & <co>, AAAA 50 %, cached 0 %", "un_bound & <co>, AAAA 100 %, cached 0 %", "un_bound & <co>, AAAA 0 %, cached 50 %", "un_bound & <co>, AAAA 50 %, cached 50 %", "un_bound & <co>, AAAA 100 %, cached 50 %", "un_bound & <co>, AAAA 0 %, cached 100 %", "un_bound & <co>, AAAA 0 %, cached 0 %, trials of 2 s, timeout 1 s", "un_bound & <co>, AAAA 0 %, cached 0 %, trials of 1 s, timeout 0.5 s", "un_bound & <co>, AAAA 0 %, cached 0 %, trials of 2 s, timeout 0.5 s"]
plot for [i=0:29] "distribution.dat" index i using 1:4 with steps title runs[i + 1], \
     for [i=0:29] "distribution.dat" index i using 1:3 with impulses notitle

set output "convergence.svg"
set title "Trials of every search"
set xlabel "trial"
set ylabel "queries/s"
set xtics norotate autofreq
set yrange [*:*]
plot for [i=0:89] "convergence.dat" index i using 1:2 with linespoints notitle

set output "latency.svg"
set title "Round-trip times"
set xlabel "slower answers, %"
set ylabel "us"
set xtics norotate autofreq
set yrange [*:*]
set logscale xy
set xrange [100:0.001] reverse
array points[30] = ["dns64d cores=1, AAAA 0 %, cached 0 %", "dns64d cores=1, AAAA 50 %, cached 0 %", "dns64d cores=1, AAAA 100 %, cached 0 %", "dns64d cores=1, AAAA 0 %, cached 50 %", "dns64d cores=1, AAAA 50 %, cached 50 %", "dns64d cores=1, AAAA 100 %, cached 50 %", "dns64d cores=1, AAAA 0 %, cached 100 %", "dns64d cores=1, AAAA 0 %, cached 0 %, trials of 2 s, timeout 1 s", "dns64d cores=1, AAAA 0 %, cached 0 %, trials of 1 s, timeout 0.5 s", "dns64d cores=1, AAAA 0 %, cached 0 %, trials of 2 s, timeout 0.5 s", "dns64d cores=1-2, AAAA 0 %, cached 0 %", "dns64d cores=1-2, AAAA 50 %, cached 0 %", "dns64d cores=1-2, AAAA 100 %, cached 0 %", "dns64d cores=1-2, AAAA 0 %, cached 50 %", "dns64d cores=1-2, AAAA 50 %, cached 50 %", "dns64d cores=1-2, AAAA 100 %, cached 50 %", "dns64d cores=1-2, AAAA 0 %, cached 100 %", "dns64d cores=1-2, AAAA 0 %, cached 0 %, trials of 2 s, timeout 1 s", "dns64d cores=1-2, AAAA 0 %, cached 0 %, trials of 1 s, timeout 0.5 s", "dns64d cores=1-2, AAAA 0 %, cached 0 %, trials of 2 s, timeout 0.5 s", "un_bound & <co>, AAAA 0 %, cached 0 %", "un_bound & <co>, AAAA 50 %, cached 0 %", "un_bound & <co>, AAAA 100 %, cached 0 %", "un_bound & <co>, AAAA 0 %, cached 50 %", "un_bound & <co>, AAAA 50 %, cached 50 %", "un_bound & <co>, AAAA 100 %, cached 50 %", "un_bound & <co>, AAAA 0 %, cached 100 %", "un_bound & <co>, AAAA 0 %, cached 0 %, trials of 2 s, timeout 1 s", "un_bound & <co>, AAAA 0 %, cached 0 %, trials of 1 s, timeout 0.5 s", "un_bound & <co>, AAAA 0 %, cached 0 %, trials of 2 s, timeout 0.5 s"]
plot for [i=0:29] "latency.dat" index i using 2:3 with linespoints title points[i + 1]

set output "dut-only.svg"
set title "Round-trip times without the authority"
array duts[27] = ["dns64d cores=1, AAAA 0 %, cached 0 %", "dns64d cores=1, AAAA 50 %, cached 0 %", "dns64d cores=1, AAAA 100 %, cached 0 %", "dns64d cores=1, AAAA 0 %, cached 50 %", "dns64d cores=1, AAAA 50 %, cached 50 %", "dns64d cores=1, AAAA 100 %, cached 50 %", "dns64d cores=1, AAAA 0 %, cached 0 %, trials of 2 s, timeout 1 s", "dns64d cores=1, AAAA 0 %, cached 0 %, trials of 1 s, timeout 0.5 s", "dns64d cores=1, AAAA 0 %, cached 0 %, trials of 2 s, timeout 0.5 s", "dns64d cores=1-2, AAAA 0 %, cached 0 %", "dns64d cores=1-2, AAAA 50 %, cached 0 %", "dns64d cores=1-2, AAAA 100 %, cached 0 %", "dns64d cores=1-2, AAAA 0 %, cached 50 %", "dns64d cores=1-2, AAAA 50 %, cached 50 %", "dns64d cores=1-2, AAAA 100 %, cached 50 %", "dns64d cores=1-2, AAAA 0 %, cached 0 %, trials of 2 s, timeout 1 s", "dns64d cores=1-2, AAAA 0 %, cached 0 %, trials of 1 s, timeout 0.5 s", "dns64d cores=1-2, AAAA 0 %, cached 0 %, trials of 2 s, timeout 0.5 s", "un_bound & <co>, AAAA 0 %, cached 0 %", "un_bound & <co>, AAAA 50 %, cached 0 %", "un_bound & <co>, AAAA 100 %, cached 0 %", "un_bound & <co>, AAAA 0 %, cached 50 %", "un_bound & <co>, AAAA 50 %, cached 50 %", "un_bound & <co>, AAAA 100 %, cached 50 %", "un_bound & <co>, AAAA 0 %, cached 0 %, trials of 2 s, timeout 1 s", "un_bound & <co>, AAAA 0 %, cached 0 %, trials of 1 s, timeout 0.5 s", "un_bound & <co>, AAAA 0 %, cached 0 %, trials of 2 s, timeout 0.5 s"]
plot for [i=0:26] "dut-only.dat" index i using 2:3 with linespoints title duts[i + 1]

set output "lateness.svg"
set title "Lateness of queries, from the median to the worst trial"
set xlabel "figure of a trial"
set ylabel "us"
unset logscale x
set xrange [-0.5:3.9]
array senders[3] = ["dns64d cores=1", "dns64d cores=1-2", "un_bound & <co>"]
plot for [i=0:2] "lateness.dat" index i using ($1 + i * 0.4 / 3):2:2:3:xtic(5) with yerrorbars title senders[i + 1], \
     "lateness.dat" index 0 using 1:4 with lines dt 2 lc "black" title "limit"
