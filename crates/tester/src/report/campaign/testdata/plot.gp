# In this folder: gnuplot plot.gp
set key outside below height 1
set grid
set style fill solid 0.5
set offsets graph 0.02, graph 0.02, graph 0.03, 0
set xtics rotate by -45
# The mark of what is not certified stands above its bar, and not at the axis.
mark(cell) = strstrt(cell, "†") > 0 ? "†" : ""
plain(cell) = strstrt(cell, "†") > 0 ? cell[1:strstrt(cell, "†") - 1].cell[strstrt(cell, "†") + strlen("†"):*] : cell
# Of each variant the colour and the mark that the page has.
set linetype 1 lc rgb "#0072b2" pt 7
set linetype 2 lc rgb "#c98600" pt 5
set linetype 3 lc rgb "#008c66" pt 9

set terminal svg size 1000,654 noenhanced
set output "rates.svg"
set title "Sample <of> 100 % & more"
set xlabel "AAAA / cached, %"
set ylabel "queries/s"
set yrange [0:*]
width = 0.8 / 3
array rates[3] = ["dns64d cores=1", "dns64d cores=1-2", "un_bound & <co>"]
array variant_rates[3] = [1, 2, 3]
plot for [i=0:2] "rates.dat" index i using ($1 + i * width):2:(width) with boxes lt variant_rates[i + 1] title rates[i + 1], \
     for [i=0:2] "rates.dat" index i using ($1 + i * width):3:(0):($4 - $3) with vectors heads size graph 0.006,90 lc rgb "#1b1b1a" notitle, \
     for [i=0:2] "rates.dat" index i using ($1 + i * width):4:(mark(strcol(5))) with labels offset 0,0.6 notitle, \
     for [i=0:2] "rates.dat" index i using ($1 + 2 * width / 2):(0):xtic(plain(strcol(5))) with dots lc rgb "white" notitle

set terminal svg size 1000,1140 noenhanced
set output "distribution.svg"
set title "Distribution of the runs"
set xlabel "queries/s"
set ylabel "share of the runs up to a rate"
set xtics norotate autofreq
set yrange [0:1.02]
array runs[30] = ["dns64d cores=1, AAAA 0 %, cached 0 %", "dns64d cores=1, AAAA 50 %, cached 0 %", "dns64d cores=1, AAAA 100 %, cached 0 %", "dns64d cores=1, AAAA 0 %, cached 50 %", "dns64d cores=1, AAAA 50 %, cached 50 %", "dns64d cores=1, AAAA 100 %, cached 50 %", "dns64d cores=1, AAAA 0 %, cached 100 %", "dns64d cores=1, AAAA 0 %, cached 0 %, trials of 2 s, timeout 1 s", "dns64d cores=1, AAAA 0 %, cached 0 %, trials of 1 s, timeout 0.5 s", "dns64d cores=1, AAAA 0 %, cached 0 %, trials of 2 s, timeout 0.5 s", "dns64d cores=1-2, AAAA 0 %, cached 0 %", "dns64d cores=1-2, AAAA 50 %, cached 0 %", "dns64d cores=1-2, AAAA 100 %, cached 0 %", "dns64d cores=1-2, AAAA 0 %, cached 50 %", "dns64d cores=1-2, AAAA 50 %, cached 50 %", "dns64d cores=1-2, AAAA 100 %, cached 50 %", "dns64d cores=1-2, AAAA 0 %, cached 100 %", "dns64d cores=1-2, AAAA 0 %, cached 0 %, trials of 2 s, timeout 1 s", "dns64d cores=1-2, AAAA 0 %, cached 0 %, trials of 1 s, timeout 0.5 s", "dns64d cores=1-2, AAAA 0 %, cached 0 %, trials of 2 s, timeout 0.5 s", "un_bound & <co>, AAAA 0 %, cached 0 %", "un_bound & <co>, AAAA 50 %, cached 0 %", "un_bound & <co>, AAAA 100 %, cached 0 %", "un_bound & <co>, AAAA 0 %, cached 50 %", "un_bound & <co>, AAAA 50 %, cached 50 %", "un_bound & <co>, AAAA 100 %, cached 50 %", "un_bound & <co>, AAAA 0 %, cached 100 %", "un_bound & <co>, AAAA 0 %, cached 0 %, trials of 2 s, timeout 1 s", "un_bound & <co>, AAAA 0 %, cached 0 %, trials of 1 s, timeout 0.5 s", "un_bound & <co>, AAAA 0 %, cached 0 %, trials of 2 s, timeout 0.5 s"]
array variant_runs[30] = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3]
array cell_runs[30] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
plot for [i=0:29] "distribution.dat" index i using 1:4 with steps lt variant_runs[i + 1] dt cell_runs[i + 1] title runs[i + 1], \
     for [i=0:29] "distribution.dat" index i using 1:3 with impulses lt variant_runs[i + 1] dt cell_runs[i + 1] notitle

set terminal svg size 1000,654 noenhanced
set output "convergence.svg"
set title "Trials of every search"
set xlabel "trial"
set ylabel "queries/s"
set xtics norotate autofreq
set yrange [*:*]
plot for [i=0:89] "convergence.dat" index i using 1:2 with lines lc rgb "#6a6f74" notitle, \
     "convergence.dat" using 1:($3 == 0 ? $2 : NaN) with points lc rgb "#a3210f" pt 2 title "failed", \
     "convergence.dat" using 1:($3 == -1 ? $2 : NaN) with points lc rgb "#6a6f74" pt 12 title "invalid", \
     "convergence.dat" using 1:($3 == 1 ? $2 : NaN) with points lc rgb "#1b1b1a" pt 7 title "passed"

set terminal svg size 1000,1140 noenhanced
set output "latency.svg"
set title "Round-trip times"
set xlabel "slower answers, %"
set ylabel "us"
set xtics norotate autofreq
set yrange [*:*]
set logscale xy
set xrange [100:0.001] reverse
array points[30] = ["dns64d cores=1, AAAA 0 %, cached 0 %", "dns64d cores=1, AAAA 50 %, cached 0 %", "dns64d cores=1, AAAA 100 %, cached 0 %", "dns64d cores=1, AAAA 0 %, cached 50 %", "dns64d cores=1, AAAA 50 %, cached 50 %", "dns64d cores=1, AAAA 100 %, cached 50 %", "dns64d cores=1, AAAA 0 %, cached 100 %", "dns64d cores=1, AAAA 0 %, cached 0 %, trials of 2 s, timeout 1 s", "dns64d cores=1, AAAA 0 %, cached 0 %, trials of 1 s, timeout 0.5 s", "dns64d cores=1, AAAA 0 %, cached 0 %, trials of 2 s, timeout 0.5 s", "dns64d cores=1-2, AAAA 0 %, cached 0 %", "dns64d cores=1-2, AAAA 50 %, cached 0 %", "dns64d cores=1-2, AAAA 100 %, cached 0 %", "dns64d cores=1-2, AAAA 0 %, cached 50 %", "dns64d cores=1-2, AAAA 50 %, cached 50 %", "dns64d cores=1-2, AAAA 100 %, cached 50 %", "dns64d cores=1-2, AAAA 0 %, cached 100 %", "dns64d cores=1-2, AAAA 0 %, cached 0 %, trials of 2 s, timeout 1 s", "dns64d cores=1-2, AAAA 0 %, cached 0 %, trials of 1 s, timeout 0.5 s", "dns64d cores=1-2, AAAA 0 %, cached 0 %, trials of 2 s, timeout 0.5 s", "un_bound & <co>, AAAA 0 %, cached 0 %", "un_bound & <co>, AAAA 50 %, cached 0 %", "un_bound & <co>, AAAA 100 %, cached 0 %", "un_bound & <co>, AAAA 0 %, cached 50 %", "un_bound & <co>, AAAA 50 %, cached 50 %", "un_bound & <co>, AAAA 100 %, cached 50 %", "un_bound & <co>, AAAA 0 %, cached 100 %", "un_bound & <co>, AAAA 0 %, cached 0 %, trials of 2 s, timeout 1 s", "un_bound & <co>, AAAA 0 %, cached 0 %, trials of 1 s, timeout 0.5 s", "un_bound & <co>, AAAA 0 %, cached 0 %, trials of 2 s, timeout 0.5 s"]
array variant_points[30] = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3]
array cell_points[30] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
plot for [i=0:29] "latency.dat" index i using 2:3 with linespoints lt variant_points[i + 1] dt cell_points[i + 1] title points[i + 1]

set terminal svg size 1000,1086 noenhanced
set output "dut-only.svg"
set title "Round-trip times without the authority"
array duts[27] = ["dns64d cores=1, AAAA 0 %, cached 0 %", "dns64d cores=1, AAAA 50 %, cached 0 %", "dns64d cores=1, AAAA 100 %, cached 0 %", "dns64d cores=1, AAAA 0 %, cached 50 %", "dns64d cores=1, AAAA 50 %, cached 50 %", "dns64d cores=1, AAAA 100 %, cached 50 %", "dns64d cores=1, AAAA 0 %, cached 0 %, trials of 2 s, timeout 1 s", "dns64d cores=1, AAAA 0 %, cached 0 %, trials of 1 s, timeout 0.5 s", "dns64d cores=1, AAAA 0 %, cached 0 %, trials of 2 s, timeout 0.5 s", "dns64d cores=1-2, AAAA 0 %, cached 0 %", "dns64d cores=1-2, AAAA 50 %, cached 0 %", "dns64d cores=1-2, AAAA 100 %, cached 0 %", "dns64d cores=1-2, AAAA 0 %, cached 50 %", "dns64d cores=1-2, AAAA 50 %, cached 50 %", "dns64d cores=1-2, AAAA 100 %, cached 50 %", "dns64d cores=1-2, AAAA 0 %, cached 0 %, trials of 2 s, timeout 1 s", "dns64d cores=1-2, AAAA 0 %, cached 0 %, trials of 1 s, timeout 0.5 s", "dns64d cores=1-2, AAAA 0 %, cached 0 %, trials of 2 s, timeout 0.5 s", "un_bound & <co>, AAAA 0 %, cached 0 %", "un_bound & <co>, AAAA 50 %, cached 0 %", "un_bound & <co>, AAAA 100 %, cached 0 %", "un_bound & <co>, AAAA 0 %, cached 50 %", "un_bound & <co>, AAAA 50 %, cached 50 %", "un_bound & <co>, AAAA 100 %, cached 50 %", "un_bound & <co>, AAAA 0 %, cached 0 %, trials of 2 s, timeout 1 s", "un_bound & <co>, AAAA 0 %, cached 0 %, trials of 1 s, timeout 0.5 s", "un_bound & <co>, AAAA 0 %, cached 0 %, trials of 2 s, timeout 0.5 s"]
array variant_duts[27] = [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3]
array cell_duts[27] = [1, 2, 3, 4, 5, 6, 8, 9, 10, 1, 2, 3, 4, 5, 6, 8, 9, 10, 1, 2, 3, 4, 5, 6, 8, 9, 10]
plot for [i=0:26] "dut-only.dat" index i using 2:3 with linespoints lt variant_duts[i + 1] dt cell_duts[i + 1] title duts[i + 1]

set terminal svg size 1000,654 noenhanced
set output "lateness.svg"
set title "Lateness of queries, from the median to the worst trial"
set xlabel "figure of a trial"
set ylabel "us"
unset logscale x
set xrange [-0.5:3.9]
array senders[3] = ["dns64d cores=1", "dns64d cores=1-2", "un_bound & <co>"]
array variant_senders[3] = [1, 2, 3]
plot for [i=0:2] "lateness.dat" index i using ($1 + i * 0.4 / 3):2:2:3 with yerrorbars lt variant_senders[i + 1] title senders[i + 1], \
     "lateness.dat" index 0 using ($1 + 2 * 0.2 / 3):2:xtic(5) with dots lc rgb "white" notitle, \
     "lateness.dat" index 0 using 1:4 with lines dt 2 lc rgb "#1b1b1a" title "limit"
