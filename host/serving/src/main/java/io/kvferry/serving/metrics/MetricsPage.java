// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.metrics;

import io.prometheus.metrics.expositionformats.ExpositionFormats;
import io.prometheus.metrics.model.registry.PrometheusRegistry;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.Optional;
import java.util.function.Consumer;

/// The metrics of a process: some are counted as things happen, others are sampled at each scrape.
///
/// Threading: any thread.
public final class MetricsPage {
    private static final ExpositionFormats FORMATS = ExpositionFormats.init();

    final PrometheusRegistry registry = new PrometheusRegistry();

    /// A page in the format that the scraper asked for.
    ///
    /// @param contentType what the Content-Type header says
    @SuppressWarnings("ArrayRecordComponent") // written once, for one response
    public record Written(String contentType, byte[] body) {}

    /// Adds what `collect` puts into the samples at each scrape.
    public void collect(Consumer<Samples> collect) {
        registry.register(() -> {
            var samples = new Samples();
            collect.accept(samples);
            return samples.snapshots();
        });
    }

    /// @param accept the request's Accept header; Prometheus' text format without one
    public Written write(String accept) throws IOException {
        var writer = FORMATS.findWriter(accept);
        var out = new ByteArrayOutputStream(16 << 10);
        writer.write(out, registry.scrape());
        return new Written(writer.getContentType(), out.toByteArray());
    }

    /// The first sample of `metric` whose label part contains `labelPart`, out of a page in text
    /// format.
    public static Optional<Double> find(String page, String metric, String labelPart) {
        return page.lines()
                .filter(line -> line.startsWith(metric + " ") || line.startsWith(metric + "{"))
                .filter(line -> line.contains(labelPart))
                .map(line -> Double.valueOf(line.substring(line.lastIndexOf(' ') + 1)))
                .findFirst();
    }
}
