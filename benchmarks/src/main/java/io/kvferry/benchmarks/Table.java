// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;

/// A plain text table, columns as wide as their widest cell; also Markdown, so that it can be
/// pasted.
public final class Table {
    private final List<String> header;
    private final List<List<String>> rows = new ArrayList<>();

    public Table(String... header) {
        this.header = List.of(header);
    }

    public void row(Object... cells) {
        if (cells.length != header.size()) {
            throw new IllegalArgumentException(
                    cells.length + " cells for " + header.size() + " columns");
        }
        rows.add(Arrays.stream(cells).map(Table::text).toList());
    }

    /// Adds a row and prints it at once, so that a run that is cut off has shown something.
    public void rowNow(Object... cells) {
        row(cells);
        System.out.println("# " + String.join(" | ", rows.getLast()));
    }

    private static String text(Object cell) {
        return cell instanceof Double number
                ? String.format(Locale.ROOT, "%.2f", number)
                : String.valueOf(cell);
    }

    public void print() {
        var widths = new int[header.size()];
        for (int column = 0; column < widths.length; column++) {
            widths[column] = header.get(column).length();
            for (var row : rows) {
                widths[column] = Math.max(widths[column], row.get(column).length());
            }
        }
        line(header, widths);
        line(Arrays.stream(widths).mapToObj("-"::repeat).toList(), widths);
        rows.forEach(row -> line(row, widths));
        System.out.println();
    }

    private static void line(List<String> cells, int[] widths) {
        var out = new StringBuilder("|");
        for (int column = 0; column < widths.length; column++) {
            out.append(' ')
                    .append(cells.get(column))
                    .append(" ".repeat(widths[column] - cells.get(column).length()))
                    .append(" |");
        }
        System.out.println(out);
    }
}
