// BullMQ under the load of `tidegate-bench workflow`: node bullmq.mjs PORT WORKFLOWS PARENTS
// Prints one JSON object. Redis on PORT must be empty.
//
// Flows of two jobs are made one after the other (a quarter of WORKFLOWS), then in bulk over two connections; then all jobs are
// worked off by a worker that does nothing, and last a job that waits for PARENTS others. The worker has default settings but for
// its concurrency: 1, 4 and 8 workers with a concurrency of 1 to 100 each did less, or as much.
import { FlowProducer, Worker } from 'bullmq';

const [port, workflows, parents] = process.argv.slice(2).map(Number);
const connection = { host: '127.0.0.1', port };
const BULK = 1000;
const WORKERS = 1;
const CONCURRENCY = 100;

const flow = (queueName) => ({
  name: 'normalize', queueName, children: [{ name: 'prepare', queueName, data: { foo: 'bar' } }],
});
const perSecond = (count, start) => count / ((performance.now() - start) / 1000);

// Works until `jobs` jobs are done. The workers connect first: what is timed is work.
async function work(queue, jobs) {
  const workers = Array.from({ length: WORKERS }, () =>
    new Worker(queue, async () => null, { connection, concurrency: CONCURRENCY, autorun: false }));
  await Promise.all(workers.map((worker) => worker.waitUntilReady()));
  let left = jobs;
  const start = performance.now();
  await new Promise((done, fail) => {
    for (const worker of workers) {
      worker.on('completed', () => { if (--left === 0) done(); });
      worker.on('failed', (_, error) => fail(error));
      worker.run();
    }
  });
  const seconds = (performance.now() - start) / 1000;
  await Promise.all(workers.map((worker) => worker.close(true)));
  return seconds;
}

const producers = [new FlowProducer({ connection }), new FlowProducer({ connection })];
await Promise.all(producers.map((producer) => producer.waitUntilReady()));

const serial = Math.ceil(workflows / 4);
let start = performance.now();
for (let at = 0; at < serial; at += 1) await producers[0].add(flow('serial'));
const serialPerSecond = perSecond(serial, start);

const requests = Math.ceil(workflows / BULK / producers.length);
start = performance.now();
await Promise.all(producers.map(async (producer) => {
  for (let at = 0; at < requests; at += 1) await producer.addBulk(Array.from({ length: BULK }, () => flow('bulk')));
}));
const created = requests * producers.length * BULK;
const bulkPerSecond = perSecond(created, start);

const jobsPerSecond = created * 2 / await work('bulk', created * 2);

const children = Array.from({ length: parents }, (_, at) => ({ name: `parent-${at}`, queueName: 'join' }));
await producers[0].add({ name: 'join', queueName: 'join', children });
const joinSeconds = await work('join', parents + 1);

await Promise.all(producers.map((producer) => producer.close()));
console.log(JSON.stringify({
  workers: WORKERS, concurrency: CONCURRENCY, serial_per_second: serialPerSecond, bulk_per_second: bulkPerSecond,
  jobs_per_second: jobsPerSecond, join_seconds: joinSeconds,
}));
