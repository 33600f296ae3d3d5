export function WorkflowPage({ id }: { id: string }) {
  return <h1>{id}</h1>;
}
