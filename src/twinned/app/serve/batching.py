"""Micro-batching: concurrent requests are predicted in one call of the model."""

from __future__ import annotations

import asyncio
import os
from typing import Any, NamedTuple

from twinned.app.serve.service import BatchPredictions, PredictionService

MAX_WORKERS = min(2, os.cpu_count() or 1)  # threads: the tree kernel releases the GIL


class _PendingRequest(NamedTuple):
    rows: list[list[Any]]
    intervals: bool
    result: asyncio.Future[BatchPredictions]


class MicroBatcher:
    """Collects the requests that arrive while the model is busy, and predicts them together.

    A request never waits for others to arrive: it starts a worker where one is free. The gain is
    that a tree in the processor's cache is evaluated for many rows.
    """

    def __init__(self, service: PredictionService) -> None:
        self._service = service
        self._pending: list[_PendingRequest] = []
        self._n_workers = 0
        self._tasks = set[asyncio.Task[None]]()

    async def predict(self, rows: list[list[Any]], intervals: bool) -> BatchPredictions:
        """Return the predictions of parsed rows, with the error scale if `intervals`."""
        result: asyncio.Future[BatchPredictions] = asyncio.get_running_loop().create_future()
        self._pending.append(_PendingRequest(rows, intervals, result))
        if self._n_workers < MAX_WORKERS:
            self._n_workers += 1
            task = asyncio.create_task(self._work())
            self._tasks.add(task)  # the event loop holds only a weak reference
            task.add_done_callback(self._tasks.discard)
        return await result

    async def _work(self) -> None:
        while self._pending:
            batch, self._pending = self._pending, []
            await self._predict_batch(batch)
        self._n_workers -= 1  # no await since the check: the next request starts a worker

    async def _predict_batch(self, batch: list[_PendingRequest]) -> None:
        rows = [row for request in batch for row in request.rows]
        intervals = any(request.intervals for request in batch)
        try:
            predictions = await asyncio.to_thread(self._service.predict, rows, intervals)
        except Exception as error:
            if len(batch) > 1:
                for request in batch:  # each alone, so that only the faulty ones fail
                    await self._predict_batch([request])
            elif not batch[0].result.done():
                batch[0].result.set_exception(error)
            return
        start = 0
        for request in batch:
            stop = start + len(request.rows)
            if not request.result.done():  # done if the client has disconnected
                request.result.set_result(predictions.take(slice(start, stop)))
            start = stop
